//! Sends a snapshot in pieces, one after the other, from where the receiver has got to.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use dolomedes_netproto::peer::{Lane, Transport};
use dolomedes_storage::engine::{Engine, Reader};
use openraft::{
    errors::{NetworkError, RPCError},
    raft::SnapshotResponse,
};

use super::{
    super::{
        pieces::{self, Place},
        settings::INSTALL_MS,
        snapshot::read_position,
        types::{Snapshot, Types, Vote},
    },
    peer::failed,
    wire::{self, Install, Offer, Piece, Received, Request},
};

/// A transfer in which a piece is not taken in this time has stalled and begins anew, from where it got to.
const PIECE_DEADLINE: Duration = Duration::from_secs(10);

/// One transfer.
pub(super) struct Sending<'a> {
    pub(super) group: u32,
    pub(super) target: u64,
    pub(super) transport: &'a Arc<dyn Transport>,
    pub(super) engine: &'a Arc<dyn Engine>,
    pub(super) vote: Vote,
}

fn broken(detail: impl ToString) -> RPCError<Types> {
    NetworkError::from_string(detail).into()
}

impl Sending<'_> {
    async fn ask(&self, request: Request, deadline: Duration) -> Result<Received, RPCError<Types>> {
        let request = wire::encode_request(self.group, &request);
        let answer: Bytes =
            self.transport.call(self.target, Lane::Snapshot, request, deadline).await.map_err(failed)?;
        wire::decode_received(&answer).map_err(broken)
    }

    /// Sends `snapshot` and has it installed.
    pub(super) async fn run(&self, snapshot: Snapshot) -> Result<SnapshotResponse<Types>, RPCError<Types>> {
        let vote = self.vote;
        let last = snapshot.meta.last_log_id.map_or(0, |id| id.index);
        let offer = Offer { vote, meta: snapshot.meta.clone() };
        let mut received = self.ask(Request::Offer(offer), PIECE_DEADLINE).await?;
        let rows = snapshot.snapshot.rows();
        let (engine, group) = (self.engine.clone(), self.group);
        let opened = tokio::task::spawn_blocking(move || {
            let reader: Arc<dyn Reader> = Arc::from(engine.open_checkpoint(&rows)?);
            let prefix = pieces::prefix(group, read_position(&*reader, group)?.generation);
            Ok::<_, dolomedes_storage::Error>((reader, prefix))
        });
        let (reader, prefix) = opened.await.map_err(broken)?.map_err(broken)?;
        loop {
            if received.vote > vote || received.done {
                return Ok(SnapshotResponse::new(received.vote));
            }
            let (number, after) = (received.next, received.after.take());
            let (reader, prefix) = (reader.clone(), prefix.clone());
            let read = tokio::task::spawn_blocking(move || {
                let piece: Option<(Bytes, Place)> = pieces::next_piece(&*reader, &prefix, after.as_ref())?;
                Ok::<_, dolomedes_storage::Error>(piece)
            });
            let Some((rows, _)) = read.await.map_err(broken)?.map_err(broken)? else {
                let install = Install { vote, last, pieces: number };
                let deadline = Duration::from_millis(INSTALL_MS);
                received = self.ask(Request::Install(install), deadline).await?;
                if received.vote > vote || received.done {
                    continue;
                }
                return Err(broken("what was received of a snapshot is not what was sent"));
            };
            let checksum = crc32fast::hash(&rows);
            let piece = Piece { vote, last, number, checksum, rows };
            received = self.ask(Request::Piece(piece), PIECE_DEADLINE).await?;
            if received.next <= number && received.vote <= vote && !received.done {
                return Err(broken("a piece of a snapshot was not taken"));
            }
        }
    }
}
