//! Field-by-field encoding of values: LEB128 integers, length-prefixed bytes. Total: no input makes the decoder panic
//! or allocate more than the input is long.

/// Why bytes could not be read as a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot decode {what} at byte {at}: {why}")]
pub struct DecodeError {
    /// The kind of value being read.
    pub what: &'static str,
    /// Offset of the first byte that made no sense.
    pub at: usize,
    /// What was wrong with it.
    pub why: &'static str,
}

impl From<DecodeError> for crate::Error {
    fn from(error: DecodeError) -> Self {
        crate::Error::corrupt(error.what, error.to_string())
    }
}

/// Appends fields to a byte vector.
#[derive(Debug, Default)]
pub struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    /// Starts a value of format `version`.
    pub fn versioned(version: u8) -> Self {
        Self { bytes: vec![version] }
    }

    /// Starts with `capacity` bytes reserved and no version byte.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { bytes: Vec::with_capacity(capacity) }
    }

    /// One byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes.push(value);
        self
    }

    /// A truth value, as 0 or 1.
    pub fn bool(&mut self, value: bool) -> &mut Self {
        self.u8(u8::from(value))
    }

    /// An unsigned integer in 1 to 10 bytes (LEB128).
    pub fn uint(&mut self, mut value: u64) -> &mut Self {
        while value >= 0x80 {
            self.bytes.push((value as u8) | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
        self
    }

    /// A 128-bit value in 16 bytes, big endian.
    pub fn u128(&mut self, value: u128) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// Bytes behind their length.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.uint(value.len() as u64);
        self.bytes.extend_from_slice(value);
        self
    }

    /// Text behind its length in bytes.
    pub fn str(&mut self, value: &str) -> &mut Self {
        self.bytes(value.as_bytes())
    }

    /// A flag byte, then the value where there is one.
    pub fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) -> &mut Self {
        self.bool(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
        self
    }

    /// A count, then each item.
    pub fn list<T>(&mut self, items: &[T], mut write: impl FnMut(&mut Self, &T)) -> &mut Self {
        self.uint(items.len() as u64);
        for item in items {
            write(self, item);
        }
        self
    }

    /// Bytes as they are, without a length.
    pub fn raw(&mut self, value: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(value);
        self
    }

    /// The bytes so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The finished value.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// Reads fields in the order in which an [`Encoder`] wrote them.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    what: &'static str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Decoder<'a> {
    /// Reads `bytes`; `what` names the kind of value in errors.
    pub fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, bytes, at: 0 }
    }

    /// An error at the present place, for checks of the caller's own.
    pub fn error(&self, why: &'static str) -> DecodeError {
        DecodeError { what: self.what, at: self.at, why }
    }

    /// Bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// `count` bytes as they are.
    pub fn raw(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        if count > self.remaining() {
            return Err(self.error("the value ends early"));
        }
        let slice = &self.bytes[self.at..self.at + count];
        self.at += count;
        Ok(slice)
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.raw(1)?[0])
    }

    /// A truth value.
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.error("a flag is neither 0 nor 1")),
        }
    }

    /// An unsigned integer.
    pub fn uint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            if shift == 63 && byte > 1 {
                return Err(self.error("an integer exceeds 64 bits"));
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.error("an integer exceeds 64 bits"))
    }

    /// An unsigned integer of at most 32 bits.
    pub fn uint32(&mut self) -> Result<u32, DecodeError> {
        u32::try_from(self.uint()?).map_err(|_| self.error("an integer exceeds 32 bits"))
    }

    /// A 128-bit value.
    pub fn u128(&mut self) -> Result<u128, DecodeError> {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(self.raw(16)?);
        Ok(u128::from_be_bytes(bytes))
    }

    /// Bytes behind their length.
    pub fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let count = self.uint()?;
        let count = usize::try_from(count).map_err(|_| self.error("the value ends early"))?;
        self.raw(count)
    }

    /// Text behind its length.
    pub fn str(&mut self) -> Result<&'a str, DecodeError> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes).map_err(|_| self.error("text is not UTF-8"))
    }

    /// A value behind its flag byte.
    pub fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        Ok(if self.bool()? { Some(read(self)?) } else { None })
    }

    /// Items behind their count. Each item takes at least one byte, which bounds what a false count can allocate.
    pub fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let count = self.uint()?;
        if count > self.remaining() as u64 {
            return Err(self.error("a list claims more items than there are bytes"));
        }
        let mut items = Vec::with_capacity(count.min(4096) as usize);
        for _ in 0..count {
            items.push(read(self)?);
        }
        Ok(items)
    }

    /// Ends reading: left-over bytes are an error.
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.remaining() == 0 { Ok(()) } else { Err(self.error("bytes are left over")) }
    }
}
