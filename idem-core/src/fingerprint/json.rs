//! Reads strict JSON text (RFC 8259) and writes it as deterministic CBOR.

use super::FingerprintError;
use super::cbor::Encoder;
use super::number;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The deterministic CBOR of the value that `text` is.
pub(super) fn canonical_bytes(text: &[u8]) -> Result<Vec<u8>, FingerprintError> {
    if text.starts_with(BYTE_ORDER_MARK) {
        return Err(FingerprintError::json(0, "a byte order mark"));
    }
    let text = std::str::from_utf8(text)
        .map_err(|error| FingerprintError::json(error.valid_up_to(), "invalid UTF-8"))?;
    let mut encoder = Encoder::default();
    encode(text, &mut encoder)?;
    encoder.finish()
}

/// Writes the value that `text` is, at the encoder's depth of nesting.
pub(super) fn encode(text: &str, encoder: &mut Encoder) -> Result<(), FingerprintError> {
    let mut parser = Parser { text, at: 0, encoder, unescaped: String::new() };
    parser.skip_space();
    parser.value()?;
    parser.skip_space();
    match parser.peek() {
        None => Ok(()),
        Some(_) => Err(parser.problem("data after the value")),
    }
}

struct Parser<'t, 'e> {
    text: &'t str,
    /// Offset of the next byte.
    at: usize,
    encoder: &'e mut Encoder,
    /// Room for strings with escapes, kept to save allocations.
    unescaped: String,
}

impl<'t> Parser<'t, '_> {
    /// Reads a value that starts here. Recursion ends at the encoder's limit.
    fn value(&mut self) -> Result<(), FingerprintError> {
        match self.peek() {
            Some(b'{') => self.object(),
            Some(b'[') => self.array(),
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", |encoder| encoder.boolean(true)),
            Some(b'f') => self.word("false", |encoder| encoder.boolean(false)),
            Some(b'n') => self.word("null", Encoder::null),
            _ => Err(self.problem("expected a value")),
        }
    }

    fn object(&mut self) -> Result<(), FingerprintError> {
        let start = self.at;
        let map = self.encoder.begin_map(None);
        let map = map.map_err(|error| error.located(start))?;
        self.at += 1;
        self.skip_space();
        if !self.accept(b'}') {
            self.members()?;
        }
        self.encoder.end_map(map)
    }

    /// Reads one member or more, and the brace behind them.
    fn members(&mut self) -> Result<(), FingerprintError> {
        loop {
            self.member()?;
            self.skip_space();
            if self.accept(b'}') {
                return Ok(());
            }
            if !self.accept(b',') {
                return Err(self.problem("expected ',' or '}'"));
            }
            self.skip_space();
        }
    }

    fn member(&mut self) -> Result<(), FingerprintError> {
        if self.peek() != Some(b'"') {
            return Err(self.problem("expected a member name in quotes"));
        }
        let origin = self.at;
        let start = self.encoder.position();
        self.string()?;
        let key = self.encoder.key_since(start, Some(origin));
        self.skip_space();
        if !self.accept(b':') {
            return Err(self.problem("expected ':'"));
        }
        self.skip_space();
        self.value()?;
        self.encoder.end_member(key);
        Ok(())
    }

    fn array(&mut self) -> Result<(), FingerprintError> {
        let start = self.at;
        let array = self.encoder.begin_array(None);
        let mut array = array.map_err(|error| error.located(start))?;
        self.at += 1;
        self.skip_space();
        if self.accept(b']') {
            self.encoder.end_array(array);
            return Ok(());
        }
        loop {
            self.value()?;
            array.count_element();
            self.skip_space();
            if self.accept(b']') {
                self.encoder.end_array(array);
                return Ok(());
            }
            if !self.accept(b',') {
                return Err(self.problem("expected ',' or ']'"));
            }
            self.skip_space();
        }
    }

    fn number(&mut self) -> Result<(), FingerprintError> {
        self.at = number::encode_at(self.text, self.at, self.encoder)?;
        Ok(())
    }

    fn word(&mut self, word: &str, write: fn(&mut Encoder)) -> Result<(), FingerprintError> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.problem("expected a value"));
        }
        self.at += word.len();
        write(self.encoder);
        Ok(())
    }

    /// Reads a string, the quote of which is the next byte.
    fn string(&mut self) -> Result<(), FingerprintError> {
        self.at += 1;
        let plain = self.plain_run()?;
        if self.accept(b'"') {
            self.encoder.text(plain);
            return Ok(());
        }
        self.unescaped.clear();
        self.unescaped.push_str(plain);
        while !self.accept(b'"') {
            let unescaped = self.escape()?;
            self.unescaped.push(unescaped);
            let plain = self.plain_run()?;
            self.unescaped.push_str(plain);
        }
        self.encoder.text(&self.unescaped);
        Ok(())
    }

    /// Reads the part of a string up to the next quote or backslash.
    fn plain_run(&mut self) -> Result<&'t str, FingerprintError> {
        let start = self.at;
        let special = |byte: &u8| matches!(byte, b'"' | b'\\' | ..0x20);
        let rest = &self.text.as_bytes()[start..];
        self.at += rest.iter().position(special).unwrap_or(rest.len());
        match self.peek() {
            Some(b'"' | b'\\') => Ok(&self.text[start..self.at]),
            Some(_) => Err(self.problem("a control character that is not escaped")),
            None => Err(self.problem("expected '\"'")),
        }
    }

    /// Reads an escape, the backslash of which is the next byte.
    fn escape(&mut self) -> Result<char, FingerprintError> {
        let start = self.at;
        self.at += 1;
        let unescaped = match self.peek() {
            Some(plain @ (b'"' | b'\\' | b'/')) => char::from(plain),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(start),
            _ => return Err(FingerprintError::json(start, "an unknown escape")),
        };
        self.at += 1;
        Ok(unescaped)
    }

    /// Reads `u` and four digits, and a second escape if the first is the
    /// first half of a surrogate pair (RFC 8259, section 7).
    fn unicode_escape(&mut self, start: usize) -> Result<char, FingerprintError> {
        let lone = || FingerprintError::json(start, "a lone surrogate");
        let mut point = self.code_unit()?;
        if let 0xd800..=0xdbff = point {
            if !self.text[self.at..].starts_with("\\u") {
                return Err(lone());
            }
            self.at += 1;
            let low = self.code_unit()?;
            if !matches!(low, 0xdc00..=0xdfff) {
                return Err(lone());
            }
            point = 0x1_0000 + ((point - 0xd800) << 10 | (low - 0xdc00));
        }
        char::from_u32(point).ok_or_else(lone)
    }

    /// Reads the `u` that is the next byte, and four hexadecimal digits.
    fn code_unit(&mut self) -> Result<u32, FingerprintError> {
        self.at += 1;
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let digit = digit.ok_or_else(|| self.problem("expected a hexadecimal digit"))?;
            unit = unit << 4 | digit;
            self.at += 1;
        }
        Ok(unit)
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Steps over `byte` if it is the next one.
    fn accept(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn problem(&self, problem: &'static str) -> FingerprintError {
        FingerprintError::json(self.at, problem)
    }
}
