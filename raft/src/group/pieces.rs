//! The rows of one group in pieces: what a snapshot is sent and received as. The same rows come from every node that has
//! applied as much, since the keys are without group and generation. Only the bytes; who sends them is [`super::rpc`]'s.

use std::ops::ControlFlow;

use bytes::Bytes;
use dolomedes_storage::{
    Result,
    codec::{
        DecodeError, Decoder, Encoder,
        key::{KeyBuilder, successor},
    },
    engine::{Family, Reader},
};

const VERSION: u8 = 1;

/// A piece ends with the row that reaches so many bytes, as does what is held in memory of a scan.
pub const PIECE_BYTES: usize = 1 << 20;

/// The families that hold rows of the machine, in the order in which they are sent.
pub(super) const FAMILIES: [Family; 2] = [Family::State, Family::Seen];

/// The last row of a piece: the position of its family in [`FAMILIES`], and its key.
pub type Place = (u8, Bytes);

/// Rows by key.
pub type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// What the key of every row of a generation starts with; the machine's tables say so too.
pub(super) fn prefix(group: u32, generation: u64) -> Vec<u8> {
    KeyBuilder::new().u32(group).u64(generation).build()
}

/// The rows of `family` under `prefix`, which is taken off their keys, behind the key `after`. None are left where there
/// are none.
pub(super) fn page(reader: &dyn Reader, family: Family, prefix: &[u8], after: Option<&[u8]>) -> Result<Rows> {
    let Some(end) = successor(prefix) else { return Ok(Rows::new()) };
    let start = match after {
        Some(after) => [prefix, after, &[0]].concat(),
        None => prefix.to_vec(),
    };
    let (mut rows, mut bytes) = (Rows::new(), 0);
    reader.scan(family, &start, &end, &mut |key, value| {
        bytes += key.len() + value.len();
        rows.push((key[prefix.len()..].to_vec(), value.to_vec()));
        if bytes >= PIECE_BYTES { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(rows)
}

/// The piece behind `after`, and the place of its last row; `None` behind the last piece.
pub(super) fn next_piece(
    reader: &dyn Reader,
    prefix: &[u8],
    after: Option<&Place>,
) -> Result<Option<(Bytes, Place)>> {
    let first = after.map_or(0, |(family, _)| *family);
    for number in first..FAMILIES.len() as u8 {
        let key = after.filter(|(family, _)| *family == number).map(|(_, key)| &key[..]);
        let rows = page(reader, FAMILIES[usize::from(number)], prefix, key)?;
        if let Some((last, _)) = rows.last() {
            let place = (number, Bytes::copy_from_slice(last));
            return Ok(Some((encode(number, &rows), place)));
        }
    }
    Ok(None)
}

fn encode(family: u8, rows: &Rows) -> Bytes {
    let mut encoder = Encoder::with_capacity(PIECE_BYTES + PIECE_BYTES / 4);
    encoder.u8(VERSION).u8(family).list(rows, |encoder, (key, value)| {
        encoder.bytes(key).bytes(value);
    });
    encoder.finish().into()
}

/// Reads a piece: the position of its family, and its rows, at least one, in ascending order.
pub fn decode(bytes: &[u8]) -> std::result::Result<(u8, Rows), DecodeError> {
    let mut decoder = Decoder::new("a piece of a snapshot", bytes);
    if decoder.u8()? != VERSION {
        return Err(decoder.error("its version is not known to this program"));
    }
    let family = decoder.u8()?;
    if usize::from(family) >= FAMILIES.len() {
        return Err(decoder.error("its family is not known to this program"));
    }
    let rows = decoder.list(|decoder| Ok((decoder.bytes()?.to_vec(), decoder.bytes()?.to_vec())))?;
    if rows.is_empty() || rows.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
        return Err(decoder.error("its rows do not ascend"));
    }
    decoder.finish()?;
    Ok((family, rows))
}
