//! Under which keys of the server everything lies.
//!
//! The crate's first page shows them.
//!
//! What stands in braces decides the hash slot (the specification of Redis Cluster, "Hash tags"), so a
//! tenant's keys share one. A brace in its name would end the tag early: braces and percent signs are escaped.
//! The number is the operation's length in bytes, so that no separator can be mistaken.

use std::borrow::Cow;

use idem_core::{Error, ErrorKind, Filter, Key, Kind, Space};

/// The prefix of every key that a store uses.
#[derive(Clone, Debug)]
pub(crate) struct Prefix(String);

impl Prefix {
    pub(crate) fn new(prefix: &str) -> Result<Self, Error> {
        let problem = if prefix.is_empty() || prefix.len() > Key::MAX_PART {
            "give 1 to 255 bytes"
        } else if prefix.contains(['{', '}']) {
            "a brace would decide the hash slot: leave it out"
        } else if prefix.chars().any(char::is_control) {
            "it holds a control character: leave it out"
        } else {
            return Ok(Self(prefix.to_string()));
        };
        let kind = ErrorKind::InvalidSetting { field: "prefix", problem: problem.to_string() };
        Err(Error::nothing_done(kind))
    }

    /// A name of something of one tenant or consumer.
    fn name(&self, kind: Kind, owner: &str, rest: &[&[u8]]) -> Vec<u8> {
        let owner = escape(owner);
        let length = rest.iter().map(|part| part.len()).sum::<usize>();
        let mut name = Vec::with_capacity(self.0.len() + 4 + owner.len() + length);
        name.extend_from_slice(self.0.as_bytes());
        name.extend_from_slice(b":{");
        name.push(tag(kind));
        name.extend_from_slice(owner.as_bytes());
        name.push(b'}');
        for part in rest {
            name.extend_from_slice(part);
        }
        name
    }

    pub(crate) fn record(&self, key: &Key) -> Vec<u8> {
        let (operation, request) = (key.operation().as_bytes(), key.request().as_bytes());
        let length = operation.len().to_string();
        let rest = [b":r:", length.as_bytes(), b":", operation, b":", request];
        self.name(key.kind(), key.tenant(), &rest)
    }

    pub(crate) fn value(&self, space: &Space, name: &[u8]) -> Vec<u8> {
        self.name(space.kind(), space.owner(), &[b":v:", name])
    }

    /// The pattern of SCAN that the name of every record matches whose key the filter shows, and some other names may.
    pub(crate) fn records(&self, filter: &Filter) -> String {
        let owner = match filter.only_namespace() {
            Some(space) => {
                char::from(tag(space.kind())).to_string() + &literal(&escape(space.owner()))
            }
            None => "*".to_string(),
        };
        let operation = match filter.only_operation() {
            Some(operation) => format!("{}:{}:", operation.len(), literal(operation)),
            None => String::new(),
        };
        format!("{}:{{{owner}}}:r:{operation}*", literal(&self.0))
    }

    /// The key whose record lies under `name`; none if that is no record's name.
    pub(crate) fn key(&self, name: &[u8]) -> Option<Key> {
        let name = std::str::from_utf8(name).ok()?;
        let (owner, rest) = name.strip_prefix(&self.0)?.strip_prefix(":{")?.split_once('}')?;
        let (length, parts) = rest.strip_prefix(":r:")?.split_once(':')?;
        let (operation, request) = parts.split_at_checked(length.parse().ok()?)?;
        let (kind, owner) = match owner.split_at_checked(1)? {
            ("t", tenant) => (Kind::Request, tenant),
            ("c", consumer) => (Kind::Event, consumer),
            _ => return None,
        };
        let key = Key::from_parts(kind, &unescape(owner)?, operation, request.strip_prefix(':')?);
        key.ok().filter(|key| self.record(key) == name.as_bytes())
    }
}

/// The name of the last token of whose record has this name.
pub(crate) fn token_beside(record: &[u8]) -> Vec<u8> {
    // The first brace that closes ends the owner: neither a prefix nor an escaped owner holds one.
    let owner = record.iter().position(|byte| *byte == b'}').map_or(0, |end| end + 1);
    [&record[..owner], b":token"].concat()
}

fn tag(kind: Kind) -> u8 {
    match kind {
        Kind::Request => b't',
        Kind::Event => b'c',
    }
}

/// The pattern that this text alone matches.
fn literal(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for letter in text.chars() {
        if matches!(letter, '*' | '?' | '[' | ']' | '\\' | '^') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern
}

fn escape(owner: &str) -> Cow<'_, str> {
    if !owner.contains(['%', '{', '}']) {
        return owner.into();
    }
    owner.replace('%', "%25").replace('{', "%7B").replace('}', "%7D").into()
}

fn unescape(owner: &str) -> Option<String> {
    let mut parts = owner.split('%');
    let mut text = parts.next()?.to_string();
    for part in parts {
        let (escape, rest) = part.split_at_checked(2)?;
        text.push(match escape {
            "25" => '%',
            "7B" => '{',
            "7D" => '}',
            _ => return None,
        });
        text.push_str(rest);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix() -> Prefix {
        Prefix::new("idem").unwrap()
    }

    fn text(name: Vec<u8>) -> String {
        String::from_utf8(name).unwrap()
    }

    #[test]
    fn names_are_pinned() {
        let key = Key::new("north", "web-order", "intent-a").unwrap();
        assert_eq!(text(prefix().record(&key)), "idem:{tnorth}:r:9:web-order:intent-a");
        assert_eq!(text(token_beside(&prefix().record(&key))), "idem:{tnorth}:token");
        let braces = Key::new("a}b", "o", "}").unwrap();
        assert_eq!(text(token_beside(&prefix().record(&braces))), "idem:{ta%7Db}:token");
        assert_eq!(text(prefix().value(&key.space(), b"a:b")), "idem:{tnorth}:v:a:b");
        let event = Key::event("billing", "event-7").unwrap();
        assert_eq!(text(prefix().record(&event)), "idem:{cbilling}:r:0::event-7");
    }

    #[test]
    fn every_name_gives_its_key_back() {
        let keys = [
            Key::new("", "o", "k"),
            Key::new("a}b{c%7B%", "o:2:x", ":r:1:x:"),
            Key::new("ténant", "opération", "clé"),
            Key::new("t", "op", "}:r:2:op:k"),
            Key::event("t", "e"),
            Key::event("{}", "0::e"),
        ];
        for key in keys.map(Result::unwrap) {
            assert_eq!(prefix().key(&prefix().record(&key)), Some(key));
        }
    }

    #[test]
    fn what_is_no_records_name_gives_none() {
        let others = [
            "idem:{tnorth}:v:x:r:1:o:k",
            "idem:{tnorth}:token",
            "other:{tnorth}:r:1:o:k",
            "idem:{xnorth}:r:1:o:k",
            "idem:{tnorth}:r:01:o:k",
            "idem:{tnorth}:r:9:o:k",
            "idem:{tnorth}:r:1:ok",
            "idem:{t%7b}:r:1:o:k",
            "idem:{t%}:r:1:o:k",
            "idem:{cnorth}:r:1:o:k",
            "idem:{tnorth}:r:0::k",
        ];
        for name in others {
            assert_eq!(prefix().key(name.as_bytes()), None, "{name}");
        }
        assert_eq!(prefix().key(b"idem:{tnorth}:r:1:o:\xff"), None);
    }

    #[test]
    fn a_pattern_matches_its_prefix_alone() {
        let prefix = Prefix::new("a*b?[c]\\").unwrap();
        assert_eq!(prefix.records(&Filter::all()), "a\\*b\\?\\[c\\]\\\\:{*}:r:*");
    }

    #[test]
    fn a_pattern_matches_its_namespace_and_operation_alone() {
        let pattern = |filter| prefix().records(&filter);
        let tenant = |tenant| Filter::all().tenant(tenant).unwrap();
        assert_eq!(pattern(tenant("north")), "idem:{tnorth}:r:*");
        assert_eq!(pattern(tenant("")), "idem:{t}:r:*");
        assert_eq!(pattern(tenant("*?[^]\\{}%")), "idem:{t\\*\\?\\[\\^\\]\\\\%7B%7D%25}:r:*");
        let events = Filter::all().in_namespace(&Space::consumer("north").unwrap());
        assert_eq!(pattern(events), "idem:{cnorth}:r:*");
        let orders = tenant("north").operation("order*").unwrap();
        assert_eq!(pattern(orders), "idem:{tnorth}:r:6:order\\*:*");
        assert_eq!(pattern(Filter::all().operation("{o}").unwrap()), "idem:{*}:r:3:{o}:*");
    }

    #[test]
    fn a_prefix_that_would_break_the_names_is_refused() {
        for bad in ["", "a{", "}", "a\nb", &"p".repeat(256)] {
            let error = Prefix::new(bad).unwrap_err();
            assert!(
                matches!(error.kind(), ErrorKind::InvalidSetting { field: "prefix", .. }),
                "{error:?}"
            );
        }
        assert!(Prefix::new(&"p".repeat(255)).is_ok());
    }
}
