//! The tokens that people copy: one string that carries a secret and by what its cluster is recognised, so that the secret
//! is shown to no other.
//!
//! `dlmj1_…` lets nodes join, `dlma1_…` lets programs use the API. Behind it, in base32 without padding (small letters):
//! 20 random bytes, the SHA-256 of the cluster CA's certificate, and a CRC-32 of all before it, prefix included, which
//! tells a string that was copied in part from one that is not known. The cluster keeps no more than the token's hash.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::BASE32_NOPAD;

use crate::peer::identity::Fingerprint;

const SECRET: usize = 20;
const FINGERPRINT: usize = 32;
const CHECKSUM: usize = 4;

/// The longest string that is looked at, in bytes: some more than a token has.
const LONGEST: usize = 256;

/// What a token is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// To enrol nodes.
    Join,
    /// To use the API.
    Access,
}

impl TokenKind {
    const ALL: [Self; 2] = [Self::Join, Self::Access];

    fn prefix(self) -> &'static str {
        match self {
            Self::Join => "dlmj1_",
            Self::Access => "dlma1_",
        }
    }
}

/// Why a string is no token. The string itself is not part of it: it may be most of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It begins otherwise.
    #[error("a token begins with {} or {}, and this does not", TokenKind::Join.prefix(), TokenKind::Access.prefix())]
    Kind,
    /// It is not whole.
    #[error("the token is damaged, or was copied in part; copy it again")]
    Damaged,
}

/// A token. Whoever has it may do what it is good for, so `Debug` hides the secret; [`Token::reveal`] does not.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    kind: TokenKind,
    secret: [u8; SECRET],
    ca: Fingerprint,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Token {
    /// Draws a new one for the cluster whose CA has this fingerprint. It is good for nothing until the cluster was told
    /// its [hash](Self::hash).
    ///
    /// # Errors
    /// If the system's random numbers cannot be read.
    pub fn draw(kind: TokenKind, ca: Fingerprint) -> io::Result<Self> {
        let mut secret = [0; SECRET];
        std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut secret))?;
        Ok(Self { kind, secret, ca })
    }

    /// What it is good for.
    pub fn kind(&self) -> TokenKind {
        self.kind
    }

    /// The fingerprint of the CA of its cluster.
    pub fn ca(&self) -> &Fingerprint {
        &self.ca
    }

    /// What the cluster keeps of it: the SHA-256 of its prefix and secret.
    pub fn hash(&self) -> [u8; 32] {
        let mut hash = [0; 32];
        let hashed = digest(&SHA256, &[self.kind.prefix().as_bytes(), &self.secret].concat());
        hash.copy_from_slice(hashed.as_ref());
        hash
    }

    /// The string to copy.
    pub fn reveal(&self) -> String {
        let mut bytes = [&self.secret[..], &self.ca].concat();
        bytes.extend_from_slice(&self.checksum());
        format!("{}{}", self.kind.prefix(), BASE32_NOPAD.encode(&bytes).to_ascii_lowercase())
    }

    fn checksum(&self) -> [u8; CHECKSUM] {
        let sum = crc32fast::hash(&[self.kind.prefix().as_bytes(), &self.secret, &self.ca].concat());
        sum.to_be_bytes()
    }
}

impl FromStr for Token {
    type Err = TokenError;

    /// Reads a token; white space around it does not count.
    fn from_str(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        let found =
            TokenKind::ALL.into_iter().find_map(|kind| Some((kind, text.strip_prefix(kind.prefix())?)));
        let (kind, rest) = found.ok_or(TokenError::Kind)?;
        if rest.len() > LONGEST || rest.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(TokenError::Damaged);
        }
        let bytes = BASE32_NOPAD.decode(rest.to_ascii_uppercase().as_bytes());
        let bytes = bytes.map_err(|_| TokenError::Damaged)?;
        let (secret, rest) = bytes.split_first_chunk::<SECRET>().ok_or(TokenError::Damaged)?;
        let (ca, sum) = rest.split_first_chunk::<FINGERPRINT>().ok_or(TokenError::Damaged)?;
        let token = Self { kind, secret: *secret, ca: *ca };
        if sum != token.checksum() {
            return Err(TokenError::Damaged);
        }
        Ok(token)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn token(kind: TokenKind, secret: [u8; SECRET], ca: Fingerprint) -> Token {
        Token { kind, secret, ca }
    }

    proptest! {
        #[test]
        fn what_is_revealed_is_read_again(join: bool, secret: [u8; SECRET], ca: [u8; 32]) {
            let kind = if join { TokenKind::Join } else { TokenKind::Access };
            let token = token(kind, secret, ca);
            let text = token.reveal();
            prop_assert_eq!(text.len(), 96);
            prop_assert!(text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'));
            prop_assert_eq!(&format!(" {text}\n").parse::<Token>().unwrap(), &token);
            // Neither the secret nor the string shows.
            let shown = format!("{token:?}");
            prop_assert!(!shown.contains(&text[6..20]));
        }

        #[test]
        fn one_wrong_letter_is_noticed(secret: [u8; SECRET], at in 0_usize..96, letter in "[a-z2-7_A-Z0189]") {
            let text = token(TokenKind::Access, secret, [7; 32]).reveal();
            let changed = format!("{}{letter}{}", &text[..at], &text[at + 1..]);
            prop_assert_eq!(changed.parse::<Token>().is_ok(), changed == text, "{}", changed);
        }

        #[test]
        fn a_part_is_noticed(secret: [u8; SECRET], to in 0_usize..96, more in "[a-z2-7]{1,9}") {
            let text = token(TokenKind::Join, secret, [7; 32]).reveal();
            prop_assert!(text[..to].parse::<Token>().is_err());
            let longer = text + &more;
            prop_assert!(longer.parse::<Token>().is_err());
        }

        #[test]
        fn anything_else_is_an_error(text in "(dlm[aj]1_)?\\PC{0,300}") {
            prop_assert!(text.parse::<Token>().is_err());
        }
    }

    #[test]
    fn hashes_differ_by_secret_and_kind_and_not_by_cluster() {
        let join = token(TokenKind::Join, [1; SECRET], [7; 32]);
        assert_eq!(join.hash(), token(TokenKind::Join, [1; SECRET], [8; 32]).hash());
        assert_ne!(join.hash(), token(TokenKind::Access, [1; SECRET], [7; 32]).hash());
        assert_ne!(join.hash(), token(TokenKind::Join, [2; SECRET], [7; 32]).hash());
        let drawn = || Token::draw(TokenKind::Join, [7; 32]).unwrap();
        assert_ne!(drawn().hash(), drawn().hash());
    }
}
