//! Undoing one content coding, piece by piece: bytes in, bytes out, nothing waits. It writes only where it is given room;
//! how much there may be in all is decided in [`super::body`].
//!
//! gzip and deflate are flate2's, br and zstd the libraries of the same names. The names are RFC 9110 8.4.1's, RFC 7932's
//! and RFC 8878's.

use brotli::enc::StandardAlloc;
use brotli::{BrotliDecompressStream, BrotliResult, BrotliState};
use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, InBuffer, Operation, OutBuffer};

use super::body::Cut;

/// A content coding that is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coding {
    /// RFC 1952.
    Gzip,
    /// RFC 1950, and the bare RFC 1951 that some servers send under this name.
    Deflate,
    /// RFC 7932.
    Brotli,
    /// RFC 8878.
    Zstd,
}

impl Coding {
    /// The coding of that name in a `Content-Encoding` header, in any case.
    pub fn named(name: &str) -> Option<Self> {
        let names = [
            ("gzip", Coding::Gzip),
            ("x-gzip", Coding::Gzip),
            ("deflate", Coding::Deflate),
            ("br", Coding::Brotli),
        ];
        let names = names.into_iter().chain([("zstd", Coding::Zstd)]);
        names.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, coding)| coding)
    }

    /// Its registered name.
    pub fn as_str(self) -> &'static str {
        match self {
            Coding::Gzip => "gzip",
            Coding::Deflate => "deflate",
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
        }
    }

    /// How many bytes tell whether the coding is really there.
    fn magic_len(self) -> usize {
        match self {
            Coding::Gzip | Coding::Deflate => 2,
            Coding::Brotli => 0,
            Coding::Zstd => 4,
        }
    }
}

/// zstd windows above 8 MiB are refused (RFC 9659), so that a few bytes cannot claim gigabytes.
const ZSTD_WINDOW_LOG: u32 = 23;

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The room is used up, or may be: call again with room.
    Room,
    /// The input is used up.
    Input,
    /// The coded stream has ended; whatever follows is not part of it.
    End,
}

/// One coding being undone.
pub(super) struct Decoder {
    coding: Coding,
    /// First bytes, held until there are enough to tell what they are.
    held: Vec<u8>,
    engine: Option<Engine>,
}

enum Engine {
    /// The header was not true: the bytes are passed as they are.
    Plain,
    Gzip(Gzip),
    Deflate(Decompress),
    Brotli(Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>),
    Zstd(Zstd),
    Ended,
}

struct Gzip {
    inflate: Decompress,
    /// Between members: what is known of the next one's magic.
    between: Option<Between>,
}

enum Between {
    Nothing,
    FirstByte,
}

struct Zstd {
    decoder: zstd::stream::raw::Decoder<'static>,
    frames: u32,
    /// At the boundary of a frame.
    whole: bool,
}

impl Decoder {
    pub(super) fn new(coding: Coding) -> Self {
        Self { coding, held: Vec::new(), engine: None }
    }

    /// Decodes from the front of `input` into the spare capacity of `out`, which is never grown and has at least 16 bytes
    /// of it.
    pub(super) fn decode(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Step, Cut> {
        if self.engine.is_none() {
            let wanted = self.coding.magic_len();
            if !self.held.is_empty() || input.len() < wanted {
                let take = (wanted - self.held.len()).min(input.len());
                self.held.extend_from_slice(&input[..take]);
                *input = &input[take..];
                if self.held.len() < wanted {
                    return Ok(Step::Input);
                }
            }
            let head = if self.held.is_empty() { &input[..wanted] } else { &self.held };
            self.engine = Some(Engine::choose(self.coding, head)?);
        }
        let Some(engine) = &mut self.engine else { return Ok(Step::Input) };
        if !self.held.is_empty() {
            let held = std::mem::take(&mut self.held);
            let mut front = held.as_slice();
            // No engine gives output for its magic except the plain one, for which there is room.
            while !front.is_empty() && engine.decode(&mut front, out)? != Step::End {}
        }
        engine.decode(input, out)
    }

    /// The input is at its end. Returns held bytes that never became enough to tell their coding.
    pub(super) fn finish(&mut self) -> Result<Vec<u8>, Cut> {
        let whole = match &self.engine {
            None => true,
            Some(Engine::Plain | Engine::Ended) => true,
            Some(Engine::Gzip(gzip)) => gzip.between.is_some(),
            Some(Engine::Zstd(zstd)) => zstd.whole,
            Some(Engine::Deflate(_) | Engine::Brotli(_)) => false,
        };
        if whole { Ok(std::mem::take(&mut self.held)) } else { Err(Cut::Incomplete) }
    }
}

impl Engine {
    fn choose(coding: Coding, head: &[u8]) -> Result<Self, Cut> {
        Ok(match (coding, head) {
            (Coding::Gzip, [0x1f, 0x8b]) => {
                Engine::Gzip(Gzip { inflate: Decompress::new_gzip(15), between: None })
            }
            (Coding::Gzip, _) => Engine::Plain,
            // RFC 1950 2.2: method 8, and the check of the two header bytes. Bare deflate cannot pass for it by chance
            // often: it would have to begin with a stored block of an odd kind.
            (Coding::Deflate, &[cmf, flags]) => {
                let zlib = cmf & 0x0f == 8 && (u16::from(cmf) << 8 | u16::from(flags)) % 31 == 0;
                Engine::Deflate(Decompress::new(zlib))
            }
            (Coding::Deflate, _) => Engine::Deflate(Decompress::new(true)),
            (Coding::Brotli, _) => {
                let alloc = StandardAlloc::default;
                Engine::Brotli(Box::new(BrotliState::new_strict(alloc(), alloc(), alloc())))
            }
            // A frame, or a skippable frame.
            (Coding::Zstd, [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18]) => {
                let mut decoder = zstd::stream::raw::Decoder::new().map_err(|_| Cut::Damaged)?;
                decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG)).map_err(|_| Cut::Damaged)?;
                Engine::Zstd(Zstd { decoder, frames: 0, whole: true })
            }
            (Coding::Zstd, _) => Engine::Plain,
        })
    }

    fn decode(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Step, Cut> {
        let step = match self {
            Engine::Ended => Step::End,
            Engine::Plain => {
                let take = input.len().min(out.capacity() - out.len());
                out.extend_from_slice(&input[..take]);
                *input = &input[take..];
                if input.is_empty() { Step::Input } else { Step::Room }
            }
            Engine::Gzip(gzip) => gzip.decode(input, out)?,
            Engine::Deflate(inflate) => inflate_step(inflate, input, out)?,
            Engine::Brotli(state) => brotli_step(state, input, out)?,
            Engine::Zstd(zstd) => zstd.decode(input, out)?,
        };
        if step == Step::End {
            *self = Engine::Ended;
            *input = &[];
        }
        Ok(step)
    }
}

fn inflate_step(inflate: &mut Decompress, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Step, Cut> {
    let (before_in, before_out) = (inflate.total_in(), inflate.total_out());
    // "Finish" is only a hint: if the stream ends in this call, as that of most pages does, no window is kept.
    let status = inflate.decompress_vec(input, out, FlushDecompress::Finish);
    let read = usize::try_from(inflate.total_in() - before_in).unwrap_or(input.len());
    *input = &input[read.min(input.len())..];
    match status {
        Ok(Status::StreamEnd) => Ok(Step::End),
        // Full: there may be more output that needs no more input.
        Ok(_) if out.len() == out.capacity() => Ok(Step::Room),
        Ok(_) if input.is_empty() => Ok(Step::Input),
        Ok(_) if read == 0 && inflate.total_out() == before_out => Err(Cut::Damaged),
        Ok(_) => Ok(Step::Room),
        Err(_) => Err(Cut::Damaged),
    }
}

impl Gzip {
    fn decode(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Step, Cut> {
        if let Some(between) = &mut self.between {
            let (Some(&byte), wanted) = (input.first(), between) else { return Ok(Step::Input) };
            match (wanted, byte) {
                (wanted @ Between::Nothing, 0x1f) => {
                    *wanted = Between::FirstByte;
                    *input = &input[1..];
                    return Ok(if input.is_empty() { Step::Input } else { Step::Room });
                }
                (Between::FirstByte, 0x8b) => {
                    self.inflate = Decompress::new_gzip(15);
                    self.between = None;
                    inflate_step(&mut self.inflate, &mut &[0x1f_u8][..], out)?;
                }
                // Padding, or something else that is not a member (RFC 1952 has no word for it; browsers ignore it).
                _ => return Ok(Step::End),
            }
        }
        let step = inflate_step(&mut self.inflate, input, out)?;
        if step != Step::End {
            return Ok(step);
        }
        self.between = Some(Between::Nothing);
        Ok(if input.is_empty() { Step::Input } else { Step::Room })
    }
}

fn brotli_step(
    state: &mut BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>,
    input: &mut &[u8],
    out: &mut Vec<u8>,
) -> Result<Step, Cut> {
    // The decoder wants initialised room; no more is initialised than is likely to be used.
    let at = out.len();
    let room = (out.capacity() - at).min(64 * 1024);
    out.resize(at + room, 0);
    let (mut read, mut written, mut total) = (0, 0, 0);
    let result = BrotliDecompressStream(
        &mut input.len(),
        &mut read,
        input,
        &mut { room },
        &mut written,
        &mut out[at..],
        &mut total,
        state,
    );
    out.truncate(at + written);
    *input = &input[read.min(input.len())..];
    match result {
        BrotliResult::ResultSuccess => Ok(Step::End),
        BrotliResult::NeedsMoreOutput => Ok(Step::Room),
        BrotliResult::NeedsMoreInput => Ok(Step::Input),
        BrotliResult::ResultFailure => Err(Cut::Damaged),
    }
}

impl Zstd {
    fn decode(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Step, Cut> {
        if input.is_empty() && self.whole {
            return Ok(Step::Input);
        }
        let at = out.len();
        let mut from = InBuffer::around(input);
        let mut to = OutBuffer::around_pos(out, at);
        let run = self.decoder.run(&mut from, &mut to);
        let (read, written) = (from.pos(), to.pos() - at);
        *input = &input[read..];
        match run {
            Ok(0) => {
                self.whole = true;
                self.frames = self.frames.saturating_add(1);
                Ok(if input.is_empty() { Step::Input } else { Step::Room })
            }
            Ok(_) => {
                self.whole = false;
                Ok(match out.len() == out.capacity() {
                    true => Step::Room,
                    false if input.is_empty() => Step::Input,
                    false if read == 0 && written == 0 => return Err(Cut::Damaged),
                    false => Step::Room,
                })
            }
            // What follows a whole frame and is not a frame is junk.
            Err(_) if self.whole && self.frames > 0 => Ok(Step::End),
            Err(_) => Err(Cut::Damaged),
        }
    }
}
