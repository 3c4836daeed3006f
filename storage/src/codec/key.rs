//! Composite keys whose byte order is the order of their parts: integers big endian, byte strings escaped
//! (0x00 becomes 0x00 0xff, and 0x00 0x01 ends the string), so that "a" sorts before "ab" and before ("a", 1).

use super::DecodeError;

/// Builds a key part by part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyBuilder {
    bytes: Vec<u8>,
}

impl KeyBuilder {
    /// An empty key.
    pub fn new() -> Self {
        Self { bytes: Vec::with_capacity(48) }
    }

    /// One byte: a table's tag or a small number.
    pub fn u8(mut self, value: u8) -> Self {
        self.bytes.push(value);
        self
    }

    /// A 32-bit integer.
    pub fn u32(mut self, value: u32) -> Self {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// A 64-bit integer.
    pub fn u64(mut self, value: u64) -> Self {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// A 128-bit integer.
    pub fn u128(mut self, value: u128) -> Self {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// A byte string of any length, with its terminator.
    pub fn bytes(mut self, value: &[u8]) -> Self {
        for &byte in value {
            self.bytes.push(byte);
            if byte == 0 {
                self.bytes.push(0xff);
            }
        }
        self.bytes.extend_from_slice(&[0, 1]);
        self
    }

    /// The finished key.
    pub fn build(self) -> Vec<u8> {
        self.bytes
    }
}

/// The smallest key that is greater than every key starting with `prefix`; `None` where `prefix` is all 0xff.
pub fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let keep = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut next = prefix[..=keep].to_vec();
    next[keep] += 1;
    Some(next)
}

/// Reads the parts back.
#[derive(Clone, Debug)]
pub struct KeyReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> KeyReader<'a> {
    /// Reads `bytes` from their start.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn error(&self, why: &'static str) -> DecodeError {
        DecodeError { what: "key", at: self.at, why }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let slice = self.bytes.get(self.at..self.at + N).ok_or_else(|| self.error("the key ends early"))?;
        self.at += N;
        let mut array = [0; N];
        array.copy_from_slice(slice);
        Ok(array)
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.take::<1>()?[0])
    }

    /// A 32-bit integer.
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_be_bytes(self.take()?))
    }

    /// A 64-bit integer.
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_be_bytes(self.take()?))
    }

    /// A 128-bit integer.
    pub fn u128(&mut self) -> Result<u128, DecodeError> {
        Ok(u128::from_be_bytes(self.take()?))
    }

    /// A byte string.
    pub fn bytes(&mut self) -> Result<Vec<u8>, DecodeError> {
        let mut value = Vec::new();
        loop {
            match self.u8()? {
                0 => match self.u8()? {
                    0xff => value.push(0),
                    1 => return Ok(value),
                    _ => return Err(self.error("a zero byte is not escaped")),
                },
                byte => value.push(byte),
            }
        }
    }

    /// Ends reading: left-over bytes are an error.
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.at == self.bytes.len() { Ok(()) } else { Err(self.error("bytes are left over")) }
    }
}
