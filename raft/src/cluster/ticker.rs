//! Lets log time pass in group 0 while this node leads it: sessions end by an entry, and somebody has to write it. Only while
//! there are any, and not at once after an election: those who keep their sessions alive have to find the new leader first.

use std::{sync::Arc, time::Duration};

use super::node::{META, Shared};
use crate::{
    command::{Command, Reply},
    machine::read::State,
};

/// How often it is looked whether there is anything that can end.
const LOOK: Duration = Duration::from_millis(500);
/// The least time between two ticks.
const LEAST: Duration = Duration::from_millis(100);
/// How long after an election nothing ends.
const GRACE: Duration = Duration::from_secs(2);

pub(super) async fn run(shared: Arc<Shared>) {
    let Some(meta) = shared.meta().cloned() else { return };
    let mut status = meta.watch();
    loop {
        if status.wait_for(|status| status.leads).await.is_err() {
            return;
        }
        tokio::time::sleep(GRACE).await;
        while status.borrow_and_update().leads {
            let reading = meta.clone();
            let any = tokio::task::spawn_blocking(move || {
                reading.view(|reader, generation| {
                    Ok(!State::new(reader, META, generation).sessions(None, 1)?.is_empty())
                })
            });
            // A storage that cannot be read ends the node by itself.
            if !matches!(any.await, Ok(Ok(true))) {
                tokio::time::sleep(LOOK).await;
                continue;
            }
            let pause = match meta.submit(Command::Tick).await {
                Ok(Reply::Ticked { next_due_ms: Some(due) }) => Duration::from_millis(due).clamp(LEAST, LOOK),
                _ => LOOK,
            };
            tokio::time::sleep(pause).await;
        }
    }
}
