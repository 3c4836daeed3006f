//! Turns a file's bytes into UTF-8 as they come: by its byte order mark, else as UTF-8. What is no text becomes U+FFFD,
//! which the readers take for a fault of the one entry. Declared encodings are not looked at: URLs are ASCII.

use std::io::{self, BufRead, Read};

use encoding_rs::{CoderResult, Decoder, UTF_8};

/// Bytes decoded at once.
const BUFFER_BYTES: usize = 16 << 10;

pub(super) struct Decoded<R> {
    pub(super) inner: R,
    decoder: Decoder,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    is_done: bool,
}

impl<R: BufRead> Decoded<R> {
    pub(super) fn new(inner: R) -> Self {
        let buffer = vec![0; BUFFER_BYTES];
        Self { inner, decoder: UTF_8.new_decoder(), buffer, start: 0, end: 0, is_done: false }
    }
}

impl<R: BufRead> BufRead for Decoded<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.start == self.end && !self.is_done {
            let bytes = self.inner.fill_buf()?;
            let is_last = bytes.is_empty();
            let (result, read, written, _) = self.decoder.decode_to_utf8(bytes, &mut self.buffer, is_last);
            self.inner.consume(read);
            (self.start, self.end) = (0, written);
            self.is_done = is_last && result == CoderResult::InputEmpty;
        }
        Ok(&self.buffer[self.start..self.end])
    }

    fn consume(&mut self, amount: usize) {
        self.start = self.end.min(self.start + amount);
    }
}

impl<R: BufRead> Read for Decoded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?;
        let amount = bytes.len().min(buffer.len());
        buffer[..amount].copy_from_slice(&bytes[..amount]);
        self.consume(amount);
        Ok(amount)
    }
}
