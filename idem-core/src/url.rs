//! What a backend needs to be opened by a URL: `scheme:path?option=value&..`.
//!
//! Opens nothing, so that any text can be tried on it.

use std::{borrow::Cow, time::Duration};

use crate::{Error, ErrorKind, Field};

/// The parts of a store's URL.
#[derive(Clone, Debug)]
pub struct Url<'u> {
    scheme: &'u str,
    raw_path: &'u str,
    path: Cow<'u, str>,
    options: Vec<(Cow<'u, str>, Cow<'u, str>)>,
}

impl<'u> Url<'u> {
    /// Takes a URL apart. No error shows what might be a part of a password.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSetting`] for what is no URL, and for an option that is given twice.
    pub fn parse(url: &'u str) -> Result<Self, Error> {
        let (scheme, rest) =
            url.split_once(':').filter(|(scheme, _)| is_scheme(scheme)).ok_or_else(|| {
                invalid("URL", "it has no scheme: begin it with one, such as `sqlite:`".to_string())
            })?;
        if rest.contains('#') {
            return Err(invalid("URL", "it holds a `#`: write it as %23"));
        }
        let (raw_path, query) = rest.split_once('?').unwrap_or((rest, ""));
        if query.contains('@') {
            let problem =
                "its options hold an `@`: in a password write `?` as %3F, elsewhere `@` as %40";
            return Err(invalid("URL", problem));
        }
        if has_bad_escape(raw_path) {
            let problem = "a `%` before its `?` begins no escape: write it as %25".to_string();
            return Err(invalid("URL", problem));
        }
        let path = percent_encoding::percent_decode_str(raw_path).decode_utf8();
        let path = path.map_err(|_| invalid("URL", "its path is not UTF-8"))?;
        let options = query.split('&').filter(|option| !option.is_empty()).map(option);
        let options = options.collect::<Result<Vec<_>, _>>()?;
        for (number, (name, _)) in options.iter().enumerate() {
            if options[..number].iter().any(|(earlier, _)| earlier == name) {
                // Which one is not shown: what follows an `&` in a password looks like one.
                return Err(invalid("option", "one is given twice: give it once"));
            }
        }
        Ok(Self { scheme, raw_path, path, options })
    }

    /// As [`Url::parse`], of a store that has one scheme.
    ///
    /// # Errors
    /// As [`Url::parse`], and [`ErrorKind::InvalidSetting`] for another scheme.
    pub fn of_scheme(url: &'u str, scheme: &str) -> Result<Self, Error> {
        let url = Self::parse(url)?;
        // Schemes have no case: RFC 3986, section 3.1.
        if !url.scheme.eq_ignore_ascii_case(scheme) {
            return Err(invalid(
                "URL",
                format!("this store has another scheme: write `{scheme}:`"),
            ));
        }
        Ok(url)
    }

    /// What comes before the first colon.
    #[must_use]
    pub fn scheme(&self) -> &'u str {
        self.scheme
    }

    /// The path as it was given.
    #[must_use]
    pub fn raw_path(&self) -> &'u str {
        self.raw_path
    }

    /// The path without escapes.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The names and values of the options without escapes, each name once.
    pub fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        self.options.iter().map(|(name, value)| (&**name, &**value))
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
            Err(invalid("option", problem))
        }
        _ => Err(invalid("option", "one is not UTF-8")),
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

/// The error for a bad setting, such as a URL or an option.
#[must_use]
pub fn invalid(field: Field, problem: impl Into<String>) -> Error {
    Error::nothing_done(ErrorKind::InvalidSetting { field, problem: problem.into() })
}

/// The error for an option of a bad value; it says which values are good.
#[must_use]
pub fn bad_value(name: &str, value: &str, wanted: &str) -> Error {
    invalid("option", format!("`{name}` is `{value}`: give {wanted}"))
}

/// The error for an option that no store of the scheme has; it says which options there are.
#[must_use]
pub fn unknown_option(scheme: &str, name: &str, known: &str) -> Error {
    invalid("option", format!("`{scheme}:` has no option `{name}`: it has {known}"))
}

/// The value of an option that is a number of milliseconds.
///
/// # Errors
/// [`ErrorKind::InvalidSetting`] for what is no number.
pub fn millis(name: &str, value: &str) -> Result<Duration, Error> {
    let millis = value.parse().map_err(|_| bad_value(name, value, "a number of milliseconds"))?;
    Ok(Duration::from_millis(millis))
}
