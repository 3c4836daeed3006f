//! The bytes of an [`Entry`], as the log keeps them and followers receive them, and of replies. The format is frozen once released: a
//! change takes a new version byte, and old versions stay readable. Rows of the machine have their codecs in
//! [`crate::machine`].

use bytes::Bytes;
pub use dolomedes_storage::codec::DecodeError;
use dolomedes_storage::codec::{Decoder, Encoder};

mod command;
mod coordination;
mod queue;
mod reply;

use self::command::{decode_command, encode_command};
pub use self::reply::{decode_reply, encode_reply};
pub(crate) use self::{
    coordination::{decode_kind, decode_wish, encode_kind, encode_wish},
    queue::{decode_config, decode_state, encode_config, encode_state},
};
use crate::command::{Command, Compare, Entry, RegistryOp, TokenHash};

/// The newest version of an entry's bytes, and so far the only one.
const ENTRY_VERSION: u8 = 1;

/// What a command takes in its encoding beside its own bytes, at most, roughly; only sizes a first allocation.
const COMMAND_OVERHEAD: usize = 64;

/// The bytes of `entry`.
pub fn encode_entry(entry: &Entry) -> Vec<u8> {
    let mut to = Encoder::with_capacity(16 + entry.commands.iter().map(size_hint).sum::<usize>());
    to.u8(ENTRY_VERSION).uint(entry.stamp);
    to.list(&entry.commands, encode_command);
    to.finish()
}

/// The entry that `bytes` hold. Its byte strings are slices of `bytes` (no copies), so they keep all of it in memory.
///
/// Any input is safe: garbage gives an error, and allocations stay proportional to the input.
pub fn decode_entry(bytes: Bytes) -> Result<Entry, DecodeError> {
    let mut from = Source { bytes: &bytes, decoder: Decoder::new("log entry", &bytes) };
    if from.decoder.u8()? != ENTRY_VERSION {
        return Err(from.decoder.error("this version of the format is not known"));
    }
    let stamp = from.decoder.uint()?;
    let commands = from.list(decode_command)?;
    from.decoder.finish()?;
    Ok(Entry { stamp, commands })
}

fn size_hint(command: &Command) -> usize {
    let own = match command {
        Command::CreateQueue { name, spec, .. } => name.len() + spec.len(),
        Command::ConfigureQueue { spec, .. } => spec.as_ref().map_or(0, Bytes::len),
        Command::Put { messages, .. } => messages.iter().map(|m| m.key.len() + m.payload.len() + 32).sum(),
        Command::Claim { more, .. } => more.iter().map(|m| m.lease.key.len() + 16).sum(),
        Command::Renew { leases, .. } => leases.iter().map(|lease| lease.key.len() + 16).sum(),
        Command::Complete { completions, .. } => {
            completions.iter().map(|c| c.lease.key.len() + 48 + c.results.len() * 32).sum()
        }
        Command::SetCheckpoint { name, value, .. } => name.len() + value.as_ref().map_or(0, Bytes::len),
        Command::Txn { compare, ops } => {
            let compared = compare.iter().map(|compare| match compare {
                Compare::Value { key, value } => key.len() + value.len(),
                Compare::Revision { key, .. } => key.len(),
                Compare::Held(guard) => guard.lock.len(),
            });
            let written = ops.iter().map(|op| match op {
                RegistryOp::Set { key, value, .. } => key.len() + value.len() + 32,
                RegistryOp::Delete { key, .. } => key.len() + 16,
            });
            compared.chain(written).sum()
        }
        Command::KeepAlive { sessions } => sessions.len() * 6,
        Command::Once { command, .. } => match &**command {
            Command::Once { .. } => 0,
            command => size_hint(command),
        },
        _ => 0,
    };
    own + COMMAND_OVERHEAD
}

/// A decoder together with the buffer it reads, to hand out slices of it.
struct Source<'a> {
    bytes: &'a Bytes,
    decoder: Decoder<'a>,
}

impl<'a> Source<'a> {
    fn bytes(&mut self) -> Result<Bytes, DecodeError> {
        let slice = self.decoder.bytes()?;
        Ok(self.bytes.slice_ref(slice))
    }

    fn string(&mut self) -> Result<String, DecodeError> {
        Ok(self.decoder.str()?.to_owned())
    }

    fn uint(&mut self) -> Result<u64, DecodeError> {
        self.decoder.uint()
    }

    fn hash(&mut self) -> Result<TokenHash, DecodeError> {
        let bytes = self.decoder.raw(size_of::<TokenHash>())?;
        bytes.try_into().map_err(|_| self.decoder.error("a hash has another length"))
    }

    fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        Ok(if self.decoder.bool()? { Some(read(self)?) } else { None })
    }

    fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let bytes = self.bytes;
        self.decoder.list(|decoder| {
            let mut item = Source { bytes, decoder: decoder.clone() };
            let value = read(&mut item)?;
            *decoder = item.decoder;
            Ok(value)
        })
    }
}
