//! The parts of a store's URL. Opens nothing, so that any text can be tried on it.

use std::borrow::Cow;

use idem_core::{Error, ErrorKind, Field};

/// The parts of a URL: `scheme:path?option=value&..`.
pub(crate) struct Url<'u> {
    pub(crate) scheme: &'u str,
    /// As it was given.
    #[cfg_attr(not(feature = "redis"), allow(dead_code))]
    pub(crate) raw_path: &'u str,
    #[cfg_attr(
        not(any(feature = "memory", feature = "sqlite", feature = "sled")),
        allow(dead_code)
    )]
    pub(crate) path: Cow<'u, str>,
    pub(crate) options: Vec<(Cow<'u, str>, Cow<'u, str>)>,
}

impl<'u> Url<'u> {
    pub(crate) fn parse(url: &'u str) -> Result<Self, Error> {
        // No error shows what might be a part of a password.
        let (scheme, rest) =
            url.split_once(':').filter(|(scheme, _)| is_scheme(scheme)).ok_or_else(|| {
                invalid("URL", "it has no scheme: begin it with one, such as `sqlite:`".to_string())
            })?;
        if rest.contains('#') {
            return Err(invalid("URL", "it holds a `#`: write it as %23".to_string()));
        }
        let (raw_path, query) = rest.split_once('?').unwrap_or((rest, ""));
        if query.contains('@') {
            let problem =
                "its options hold an `@`: in a password write `?` as %3F, elsewhere `@` as %40";
            return Err(invalid("URL", problem.to_string()));
        }
        if has_bad_escape(raw_path) {
            let problem = "a `%` before its `?` begins no escape: write it as %25".to_string();
            return Err(invalid("URL", problem));
        }
        let path = percent_encoding::percent_decode_str(raw_path).decode_utf8();
        let path = path.map_err(|_| invalid("URL", "its path is not UTF-8".to_string()))?;
        let options = query.split('&').filter(|option| !option.is_empty()).map(option);
        let options = options.collect::<Result<Vec<_>, _>>()?;
        for (number, (name, _)) in options.iter().enumerate() {
            if options[..number].iter().any(|(earlier, _)| earlier == name) {
                // Which one is not shown: what follows an `&` in a password looks like one.
                return Err(invalid("option", "one is given twice: give it once".to_string()));
            }
        }
        Ok(Self { scheme, raw_path, path, options })
    }
}

/// The name and the value of an option. A plus is a plus: only forms write spaces so.
fn option(option: &str) -> Result<(Cow<'_, str>, Cow<'_, str>), Error> {
    let (name, value) = option.split_once('=').unwrap_or((option, ""));
    let decoded = |part| percent_encoding::percent_decode_str(part).decode_utf8();
    match (decoded(name), decoded(value)) {
        (Ok(name), Ok(value)) if !has_bad_escape(option) => Ok((name, value)),
        (Ok(_), Ok(_)) => {
            let problem = "a `%` in one begins no escape: write it as %25";
            Err(invalid("option", problem.to_string()))
        }
        _ => Err(invalid("option", "one is not UTF-8".to_string())),
    }
}

/// Whether that can be a scheme: RFC 3986, section 3.1.
fn is_scheme(scheme: &str) -> bool {
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.chars().all(|next| next.is_ascii_alphanumeric() || "+-.".contains(next))
}

/// Whether a `%` is not followed by two hexadecimal digits.
fn has_bad_escape(path: &str) -> bool {
    let is_escape =
        |rest: &str| rest.len() >= 2 && rest.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit);
    path.split('%').skip(1).any(|rest| !is_escape(rest))
}

pub(crate) fn invalid(field: Field, problem: String) -> Error {
    Error::nothing_done(ErrorKind::InvalidSetting { field, problem })
}
