//! Gzip members (RFC 1952), one per WARC record. The compressor is kept and reset: making one costs more than compressing a
//! small record.

use std::io;

use flate2::{Compress, Compression, FlushCompress, Status};

const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];

pub(super) struct Members {
    deflate: Compress,
    out: Vec<u8>,
}

impl Members {
    pub(super) fn new(level: u32) -> Self {
        Self { deflate: Compress::new(Compression::new(level.min(9)), false), out: Vec::new() }
    }

    /// One member that holds `parts`, one behind the other. Valid until the next call.
    pub(super) fn member(&mut self, parts: &[&[u8]]) -> io::Result<&[u8]> {
        /// Room for output asked for at least.
        const ROOM: usize = 16 << 10;
        self.deflate.reset();
        self.out.clear();
        // One huge record should not keep its memory for ever.
        self.out.shrink_to(4 << 20);
        self.out.extend_from_slice(&HEADER);
        let mut crc = crc32fast::Hasher::new();
        let mut length = 0usize;
        for part in parts {
            crc.update(part);
            length += part.len();
            let mut rest = *part;
            while !rest.is_empty() {
                self.out.reserve(ROOM.max(rest.len() / 4));
                let before = self.deflate.total_in();
                self.deflate.compress_vec(rest, &mut self.out, FlushCompress::None)?;
                rest = &rest[(self.deflate.total_in() - before) as usize..];
            }
        }
        loop {
            self.out.reserve(ROOM);
            if self.deflate.compress_vec(&[], &mut self.out, FlushCompress::Finish)? == Status::StreamEnd {
                break;
            }
        }
        self.out.extend_from_slice(&crc.finalize().to_le_bytes());
        self.out.extend_from_slice(&(length as u32).to_le_bytes());
        Ok(&self.out)
    }
}
