//! By which bytes a key's record, and a space's values, are found.

use bytes::Bytes;
use idem_core::{Key, Kind, Space};

use crate::faults::Fault;

/// What the record of `key` is found by.
pub(crate) fn scope(fault: Option<Fault>, key: &Key) -> Vec<u8> {
    let (tenant, operation, request) = (key.tenant(), key.operation(), key.request());
    let parts = [tenant, operation, request];
    let mapped = |map: fn(&str) -> String| framed(key.kind(), &parts.map(map));
    match fault {
        Some(Fault::ScopeWithoutTenant) => framed(key.kind(), &[operation, request]),
        Some(Fault::ScopeWithoutOperation) => framed(key.kind(), &[tenant, request]),
        Some(Fault::ConsumersShareMarks) if key.kind() == Kind::Event => {
            framed(key.kind(), &[request])
        }
        Some(Fault::EmptyTenantIsNull) if tenant.is_empty() => {
            framed(key.kind(), &["null", operation, request])
        }
        Some(Fault::EmptyTenantIsNull) => framed(key.kind(), &parts),
        Some(Fault::ScopeJoined) => parts.join(":").into_bytes(),
        Some(Fault::ScopeConcatenated) => parts.concat().into_bytes(),
        Some(Fault::ScopeFolded) => mapped(str::to_lowercase),
        Some(Fault::ScopeTrimmed) => mapped(|part| part.trim_end().to_string()),
        Some(Fault::ScopeComposed) => mapped(|part| part.replace("e\u{301}", "\u{e9}")),
        Some(Fault::ScopeCut) => mapped(|part| part.chars().take(127).collect()),
        Some(Fault::ScopeAsNumber) => {
            mapped(|part| part.parse().map_or(part.to_string(), |number: i64| number.to_string()))
        }
        _ => key.to_bytes(),
    }
}

/// What the values of `space` are found by.
pub(crate) fn space(fault: Option<Fault>, space: &Space) -> Vec<u8> {
    match fault {
        Some(Fault::SpaceWithoutOwner) => framed(space.kind(), &[""]),
        Some(Fault::SpaceWithoutKind) => framed(Kind::Request, &[space.owner()]),
        Some(Fault::SpaceJoined) => [space.kind().as_str(), space.owner()].concat().into_bytes(),
        Some(Fault::SpaceFolded) => framed(space.kind(), &[space.owner().to_lowercase()]),
        _ => framed(space.kind(), &[space.owner()]),
    }
}

/// What a value of a space is found by.
pub(crate) fn value(fault: Option<Fault>, space: &[u8], name: &[u8]) -> (Vec<u8>, Bytes) {
    let name = match fault {
        Some(Fault::NameCutAtNul) => {
            name.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
        }
        Some(Fault::NamesFolded) => name.to_ascii_lowercase(),
        Some(Fault::NamesAsText) => String::from_utf8_lossy(name).into_owned().into_bytes(),
        Some(Fault::SpaceJoined) => return (Vec::new(), [space, name].concat().into()),
        _ => name.to_vec(),
    };
    (space.to_vec(), name.into())
}

/// The key as a listing shows it.
pub(crate) fn listed(fault: Option<Fault>, key: &Key) -> Key {
    if fault != Some(Fault::ListFoldsKeys) {
        return key.clone();
    }
    let folded = [key.tenant(), key.operation(), key.request()].map(str::to_lowercase);
    Key::from_parts(key.kind(), &folded[0], &folded[1], &folded[2]).unwrap_or_else(|_| key.clone())
}

/// Each part with its length before it, so that no two lists of parts are one.
fn framed(kind: Kind, parts: &[impl AsRef<str>]) -> Vec<u8> {
    let mut bytes = kind.as_str().as_bytes().to_vec();
    for part in parts {
        let part = part.as_ref().as_bytes();
        bytes.extend(u32::try_from(part.len()).unwrap().to_be_bytes());
        bytes.extend(part);
    }
    bytes
}
