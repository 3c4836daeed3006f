//! Commands that are carried out once however often they are sent: the replies to a client's newest commands are kept
//! and repeated. A client must be known before it may use this, so that one that was forgotten is told so, and never has
//! an old command carried out a second time.

use dolomedes_storage::{Error, Result, engine::Family};

use super::{
    limits,
    records::{Client, Record, take},
    tables::parts,
    work::Work,
};
use crate::{
    codec::{decode_reply, encode_reply},
    command::{ClientId, Command, Refusal, Reply},
};

/// Sequence numbers beyond the window that may be remembered longer, so that many are forgotten at once.
const SLACK: u64 = limits::ONCE_WINDOW / 4;

/// Idle clients that are looked at by one command.
const FORGET_STEPS: usize = 64;

impl Work<'_, '_> {
    pub(super) fn open_client(&mut self, id: ClientId) -> Result<Reply> {
        self.forget_clients()?;
        if self.client(id)?.is_some() {
            return Ok(Reply::Done);
        }
        let now = self.now;
        let at = now.saturating_add(limits::CLIENT_IDLE_MS);
        let facts = self.facts()?;
        if facts.clients.count >= limits::CLIENTS {
            return Ok(Reply::Refused(Refusal::Full(format!(
                "{} clients are remembered, which is the most; an idle one is forgotten after {} s",
                limits::CLIENTS,
                limits::CLIENT_IDLE_MS / 1_000
            ))));
        }
        facts.clients.added(at);
        self.store.rows.put(Family::State, self.tables.client_end(at, id), Vec::new());
        self.store_client(id, Client { used_at: now, ..Client::default() });
        Ok(Reply::Done)
    }

    pub(super) fn once(&mut self, id: ClientId, sequence: u64, command: &Command) -> Result<Reply> {
        let fit = !matches!(
            command,
            Command::Claim { .. }
                | Command::Attach { .. }
                | Command::KeepAlive { .. }
                | Command::Tick
                | Command::OpenClient { .. }
                | Command::Once { .. }
        );
        if !fit || sequence == 0 {
            return Ok(Reply::Refused(Refusal::Invalid(
                "this command cannot be sent to be carried out once, or has no sequence number from 1"
                    .to_owned(),
            )));
        }
        self.forget_clients()?;
        let Some(mut client) = self.client(id)? else { return Ok(Reply::Refused(Refusal::NoClient(id))) };
        if sequence <= client.floor {
            let upto = client.floor;
            return Ok(Reply::Refused(Refusal::Forgotten { client: id, sequence, upto }));
        }
        client.used_at = self.now;
        let row = self.tables.remembered(id, sequence);
        if let Some(reply) = self.store.rows.get(Family::State, &row)? {
            self.store_client(id, client);
            return Ok(decode_reply(reply.into())?);
        }
        let reply = self.run(command)?;
        let bytes = encode_reply(&reply);
        client.bytes = client.bytes.saturating_add(bytes.len() as u64);
        client.high = client.high.max(sequence);
        self.store.rows.put(Family::State, row, bytes);
        self.forget_replies(id, &mut client)?;
        self.store_client(id, client);
        Ok(reply)
    }

    /// Forgets the replies that are out of the client's window, or more than its bytes.
    fn forget_replies(&mut self, id: ClientId, client: &mut Client) -> Result<()> {
        let behind = client.high.saturating_sub(client.floor);
        let upto = if behind > limits::ONCE_WINDOW + SLACK { client.high - limits::ONCE_WINDOW } else { 0 };
        let room = client.bytes <= limits::ONCE_BYTES;
        if upto == 0 && room {
            return Ok(());
        }
        let bytes = if room { limits::ONCE_BYTES } else { limits::ONCE_BYTES / 4 * 3 };
        let from = self.tables.remembered(id, client.floor.saturating_add(1));
        let (_, to) = self.tables.all_remembered(id);
        // No more can be there: what was remembered before, and the new one.
        let most = usize::try_from(limits::ONCE_WINDOW + SLACK + 1).unwrap_or(usize::MAX);
        for (row, reply) in self.store.rows.first(Family::State, (&from, &to), most)? {
            let mut parts = parts(&row);
            parts.u128()?;
            let sequence = parts.u64()?;
            // The newest reply stays, whatever its size.
            if (sequence > upto && client.bytes <= bytes) || sequence == client.high {
                break;
            }
            take(&mut client.bytes, reply.len() as u64, "bytes of remembered replies")?;
            client.floor = client.floor.max(sequence);
            self.store.rows.delete(Family::State, row);
        }
        client.floor = client.floor.max(upto);
        Ok(())
    }

    /// Forgets clients that sent nothing for long.
    pub(super) fn forget_clients(&mut self) -> Result<()> {
        let (clients, now) = (self.known_facts()?.clients, self.now);
        if clients.count == 0 || clients.from > now {
            return Ok(());
        }
        let from = self.tables.client_end(clients.from, 0);
        let to = self.tables.client_end(now.saturating_add(1), 0);
        let found = self.store.rows.first(Family::State, (&from, &to), FORGET_STEPS)?;
        let mut next = if found.len() < FORGET_STEPS { now.saturating_add(1) } else { now };
        if let Some((row, _)) = found.last().filter(|_| found.len() == FORGET_STEPS) {
            next = parts(row).u64()?;
        }
        for (row, _) in found {
            let mut parts = parts(&row);
            parts.u64()?;
            let id = parts.u128()?;
            let client = self.client(id)?;
            let client =
                client.ok_or_else(|| Error::corrupt("client record", "rows name a missing client"))?;
            self.store.rows.delete(Family::State, row);
            self.facts()?.clients.removed()?;
            // It is looked at again only then, not moved with each use.
            let at = client.used_at.saturating_add(limits::CLIENT_IDLE_MS);
            if at > now {
                self.facts()?.clients.added(at);
                self.store.rows.put(Family::State, self.tables.client_end(at, id), Vec::new());
            } else {
                self.store.rows.delete_range(Family::State, self.tables.all_remembered(id));
                self.store.rows.delete(Family::State, self.tables.client(id));
            }
        }
        let clients = &mut self.facts()?.clients;
        clients.from = if clients.count == 0 { next } else { clients.from.max(next) };
        Ok(())
    }

    fn client(&self, id: ClientId) -> Result<Option<Client>> {
        let found = self.store.rows.get(Family::State, &self.tables.client(id))?;
        found.map(|bytes| Client::decode(&bytes)).transpose()
    }

    fn store_client(&mut self, id: ClientId, client: Client) {
        self.store.rows.put(Family::State, self.tables.client(id), client.encode());
    }
}
