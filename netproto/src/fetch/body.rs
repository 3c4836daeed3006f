//! Taking in a body: counts what arrives, undoes the content codings as it arrives, and stops at the caps, so that memory
//! is bounded by the caps whatever is sent. No sockets and no time: chunks come in.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};

use super::decode::{Coding, Decoder, Step};

/// Content codings on top of each other that are undone; more is not honest.
pub const MAX_CODINGS: usize = 2;

/// Below this decoded size the ratio is not looked at: a page of blanks compresses very well.
const RATIO_FREE: usize = 1024 * 1024;

/// Output of a coding beneath another one, at a time.
const SCRATCH: usize = 32 * 1024;

/// How much of a response is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the body as received.
    pub wire_bytes: u64,
    /// Bytes of the body after decoding; also the bound of what lies between two codings.
    pub decoded_bytes: u64,
    /// Decoded bytes per received byte, looked at beyond 1 MiB of decoded bytes. HTML seldom passes 20 and log-like
    /// text 100; deflate cannot pass 1032, brotli and zstd have no bound.
    pub ratio: u32,
}

impl Default for Limits {
    /// 16 MiB received, 16 MiB decoded, 256 to 1.
    fn default() -> Self {
        Self { wire_bytes: 16 << 20, decoded_bytes: 16 << 20, ratio: 256 }
    }
}

/// Why a body is not whole. What there is of it is a true prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cut {
    /// [`Limits::wire_bytes`] was reached.
    WireSize,
    /// [`Limits::decoded_bytes`] was reached.
    DecodedSize,
    /// [`Limits::ratio`] was passed.
    Ratio,
    /// The connection ended before the body, or the coded stream did.
    Incomplete,
    /// The framing of the body (chunked coding) is broken.
    Framing,
    /// A content coding is broken (or its check sum is wrong, or its zstd window above 8 MiB).
    Damaged,
    /// A content coding is not known, or there are too many: the body is as received.
    UnknownCoding,
}

impl Cut {
    /// A short stable name: snake case, never changed once released.
    pub fn as_str(self) -> &'static str {
        match self {
            Cut::WireSize => "wire_size",
            Cut::DecodedSize => "decoded_size",
            Cut::Ratio => "ratio",
            Cut::Incomplete => "incomplete",
            Cut::Framing => "framing",
            Cut::Damaged => "damaged",
            Cut::UnknownCoding => "unknown_coding",
        }
    }
}

/// A body taken in.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) body: Bytes,
    pub(super) wire: Option<Bytes>,
    pub(super) wire_bytes: u64,
    pub(super) codings: Vec<Coding>,
    pub(super) cut: Option<Cut>,
}

/// A body being taken in.
pub(super) struct Intake {
    limits: Limits,
    /// In the order in which they are undone: last applied first.
    decoders: Vec<Decoder>,
    codings: Vec<Coding>,
    out: Vec<u8>,
    /// The bytes as received: the body itself if there is no coding, the copy for archives if it is wanted.
    wire: Gathered,
    keep_wire: bool,
    wire_bytes: u64,
    /// Bytes that were between two codings.
    between: u64,
    cut: Option<Cut>,
    ended: bool,
    hint: usize,
}

/// Chunks put together, without copying if there is but one.
#[derive(Default)]
enum Gathered {
    #[default]
    None,
    One(Bytes),
    Many(BytesMut),
}

impl Gathered {
    fn push(&mut self, chunk: Bytes, hint: usize) {
        *self = match std::mem::take(self) {
            Gathered::None => Gathered::One(chunk),
            Gathered::One(first) => {
                let mut all = BytesMut::with_capacity(hint.max(first.len() + chunk.len()));
                all.extend_from_slice(&first);
                all.extend_from_slice(&chunk);
                Gathered::Many(all)
            }
            Gathered::Many(mut all) => {
                all.extend_from_slice(&chunk);
                Gathered::Many(all)
            }
        };
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Gathered::None => Bytes::new(),
            Gathered::One(bytes) => bytes,
            Gathered::Many(bytes) => bytes.freeze(),
        }
    }
}

impl Intake {
    /// For a response with these headers; `length` is the length of the body as received, if it is known.
    pub(super) fn new(headers: &HeaderMap, limits: Limits, keep_wire: bool, length: Option<u64>) -> Self {
        let (codings, cut) = match codings(headers) {
            Some(codings) => (codings, None),
            None => (Vec::new(), Some(Cut::UnknownCoding)),
        };
        // A server's word for the length is only believed up to a point.
        let hint = usize::try_from(length.unwrap_or(0).min(limits.wire_bytes).min(1 << 20)).unwrap_or(0);
        Self {
            limits,
            decoders: codings.iter().rev().map(|coding| Decoder::new(*coding)).collect(),
            codings,
            out: Vec::new(),
            wire: Gathered::None,
            keep_wire,
            wire_bytes: 0,
            between: 0,
            cut,
            ended: false,
            hint,
        }
    }

    /// Bytes received so far.
    pub(super) fn wire_bytes(&self) -> u64 {
        self.wire_bytes
    }

    /// Bytes in memory, about.
    pub(super) fn held_bytes(&self) -> u64 {
        let received = if self.keep_wire || self.decoders.is_empty() { self.wire_bytes } else { 0 };
        received + self.out.len() as u64
    }

    /// Takes a chunk; `false`: no more is wanted.
    pub(super) fn push(&mut self, mut chunk: Bytes) -> bool {
        let plain = self.decoders.is_empty();
        let cap = self.limits.wire_bytes;
        let left = usize::try_from(cap.saturating_sub(self.wire_bytes)).unwrap_or(usize::MAX);
        let mut full = None;
        if chunk.len() > left {
            chunk.truncate(left);
            full = Some(Cut::WireSize);
        }
        if plain {
            let cap = self.limits.decoded_bytes;
            let left = usize::try_from(cap.saturating_sub(self.wire_bytes)).unwrap_or(usize::MAX);
            if chunk.len() > left {
                chunk.truncate(left);
                full = Some(Cut::DecodedSize);
            }
        }
        self.wire_bytes += chunk.len() as u64;
        if self.keep_wire || plain {
            self.wire.push(chunk.clone(), self.hint);
        }
        if !plain && !self.ended && !chunk.is_empty() {
            match self.feed(&chunk) {
                Ok(()) => {}
                // A body whose coding is broken or bombs is of no more use; its rest is not read.
                Err(cut) => full = Some(cut),
            }
        }
        self.cut = self.cut.or(full);
        full.is_none()
    }

    fn feed(&mut self, chunk: &[u8]) -> Result<(), Cut> {
        if self.out.capacity() == 0 {
            self.out.reserve(self.first_reservation(chunk.len()));
        }
        let caps = Caps::new(&self.limits, self.wire_bytes);
        let step = match self.decoders.as_mut_slice() {
            [only] => drain(only, chunk, &mut self.out, &caps)?,
            [outer, inner] => {
                let mut scratch = Vec::with_capacity(SCRATCH);
                let mut input = chunk;
                loop {
                    let step = outer.decode(&mut input, &mut scratch)?;
                    self.between += scratch.len() as u64;
                    let end = drain(inner, &scratch, &mut self.out, &caps)? == Step::End;
                    scratch.clear();
                    if self.between > self.limits.decoded_bytes {
                        return Err(Cut::DecodedSize);
                    }
                    if end || step != Step::Room {
                        break if end { Step::End } else { step };
                    }
                }
            }
            _ => Step::Input,
        };
        self.ended = step == Step::End;
        Ok(())
    }

    /// Room that fits most pages, so that they are decoded without growing.
    fn first_reservation(&self, chunk: usize) -> usize {
        let cap = usize::try_from(self.limits.decoded_bytes).unwrap_or(usize::MAX).saturating_add(1);
        (self.hint.max(chunk) * 5).clamp(4 * 1024, 1024 * 1024).min(cap.max(16))
    }

    /// The body is at its end; `cut` says if that came too early.
    pub(super) fn finish(mut self, cut: Option<Cut>) -> Taken {
        self.cut = self.cut.or(cut);
        if self.cut.is_none() && self.wire_bytes > 0 {
            self.cut = self.flush().err();
        }
        let wire = self.wire.into_bytes();
        let (body, wire) = match (self.decoders.is_empty(), self.keep_wire) {
            (true, true) => (wire.clone(), Some(wire)),
            (true, false) => (wire, None),
            (false, true) => (Bytes::from(self.out), Some(wire)),
            (false, false) => (Bytes::from(self.out), None),
        };
        Taken { body, wire, wire_bytes: self.wire_bytes, codings: self.codings, cut: self.cut }
    }

    fn flush(&mut self) -> Result<(), Cut> {
        let caps = Caps::new(&self.limits, self.wire_bytes);
        match self.decoders.as_mut_slice() {
            [only] => self.out.extend(only.finish()?),
            [outer, inner] => {
                let rest = outer.finish()?;
                drain(inner, &rest, &mut self.out, &caps)?;
                self.out.extend(inner.finish()?);
            }
            _ => {}
        }
        Ok(())
    }
}

struct Caps {
    decoded: usize,
    by_ratio: usize,
}

impl Caps {
    fn new(limits: &Limits, wire_bytes: u64) -> Self {
        let by_ratio = wire_bytes.saturating_mul(u64::from(limits.ratio));
        Self {
            decoded: usize::try_from(limits.decoded_bytes).unwrap_or(usize::MAX - 1),
            by_ratio: usize::try_from(by_ratio).unwrap_or(usize::MAX).max(RATIO_FREE),
        }
    }
}

/// Decodes all of `input` to the end of `out`, which grows by doubling, and to one byte more than its cap at most.
fn drain(decoder: &mut Decoder, mut input: &[u8], out: &mut Vec<u8>, caps: &Caps) -> Result<Step, Cut> {
    loop {
        if out.capacity() - out.len() < 16 {
            let room = out.len().clamp(4 * 1024, 4 * 1024 * 1024);
            out.reserve_exact(room.min((caps.decoded + 1).saturating_sub(out.len())).max(16));
        }
        let step = decoder.decode(&mut input, out);
        if out.len() > caps.decoded {
            out.truncate(caps.decoded);
            return Err(Cut::DecodedSize);
        }
        if out.len() > caps.by_ratio {
            out.truncate(caps.by_ratio);
            return Err(Cut::Ratio);
        }
        match step? {
            Step::Room => {}
            step => return Ok(step),
        }
    }
}

/// The codings of a response in the order in which they were applied; `None` if one is unknown or there are too many.
fn codings(headers: &HeaderMap) -> Option<Vec<Coding>> {
    let mut codings = Vec::new();
    for value in headers.get_all(header::CONTENT_ENCODING) {
        for name in value.to_str().ok()?.split(',').map(str::trim) {
            // "none" and "utf-8" and the like are seen in the wild; they mean that nothing was done.
            if name.is_empty()
                || ["identity", "none", "utf-8", "utf8", "binary"].contains(&&*name.to_ascii_lowercase())
            {
                continue;
            }
            codings.push(Coding::named(name)?);
            if codings.len() > MAX_CODINGS {
                return None;
            }
        }
    }
    Some(codings)
}
