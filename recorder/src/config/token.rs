//! The bearer token that requests carry.

use std::fmt;
use std::hint::black_box;

/// A secret that every request must carry. Never printed.
#[derive(Clone)]
pub(crate) struct Token(Box<[u8]>);

impl Token {
    /// A token of visible ASCII characters.
    ///
    /// # Errors
    ///
    /// An empty token, or one with characters that an HTTP header cannot carry, is refused.
    pub(crate) fn new(text: &str) -> Result<Self, BadToken> {
        if text.is_empty() {
            return Err(BadToken("the token is empty"));
        }
        if !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(BadToken("a token consists of visible ASCII characters without blanks"));
        }
        Ok(Self(text.as_bytes().into()))
    }

    /// Compares in a time that depends on the length of `given` alone.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "asked by the server"))]
    pub(crate) fn is(&self, given: &[u8]) -> bool {
        let mut difference = u8::from(self.0.len() != given.len());
        for (expected, byte) in self.0.iter().cycle().zip(given) {
            difference = black_box(difference | (expected ^ byte));
        }
        black_box(difference) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Why a text is not a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadToken(&'static str);

impl fmt::Display for BadToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for BadToken {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_bytes_match() {
        let token = Token::new("s3cret").unwrap();
        assert!(token.is(b"s3cret"));
        for other in [&b""[..], b"s", b"s3cre", b"s3crets", b"S3cret", b"s3crets3cret", b"\0\0\0\0\0\0"] {
            assert!(!token.is(other), "{other:?}");
        }
    }

    #[test]
    fn a_token_must_fit_into_a_header() {
        for text in ["", " ", "a b", "a\n", "t\u{e9}"] {
            assert!(Token::new(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_token_is_never_printed() {
        assert_eq!(format!("{:?}", Token::new("s3cret").unwrap()), "Token(..)");
    }
}
