//! What TLS needs.

use std::{fs, io, path::Path};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// An authority that nobody knows, and its certificate for `localhost` and `127.0.0.1`, which serves servers
/// and clients alike. All are in PEM.
#[derive(Clone)]
pub struct Certificates {
    authority: String,
    certificate: String,
    key: String,
}

impl Certificates {
    /// New ones.
    ///
    /// # Errors
    ///
    /// If there is no randomness.
    pub fn for_localhost() -> io::Result<Self> {
        Self::generate().map_err(io::Error::other)
    }

    fn generate() -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let params = authority();
        let authority = params.self_signed(&key)?.pem();
        let issuer = Issuer::new(params, key);

        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(["localhost".into(), "127.0.0.1".into()])?;
        params.distinguished_name.push(DnType::CommonName, "localhost");
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &issuer)?.pem();
        Ok(Self { authority, certificate, key: key.serialize_pem() })
    }

    /// The authority's certificate, which clients must trust.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The certificate that the authority signed.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The private key of [`Certificates::certificate`].
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Writes them into a server's folder, which is where it runs, and returns the settings that name them.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<[&'static str; 8]> {
        fs::write(folder.join("authority.pem"), &self.authority)?;
        fs::write(folder.join("certificate.pem"), &self.certificate)?;
        fs::write(folder.join("key.pem"), &self.key)?;
        Ok([
            "--tls-ca-cert-file",
            "authority.pem",
            "--tls-cert-file",
            "certificate.pem",
            "--tls-key-file",
            "key.pem",
            "--tls-auth-clients",
            "no",
        ])
    }
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
}

fn authority() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "a test's authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}
