//! Puts from many tasks, packed into few requests: what arrives while earlier requests are on their way goes together in
//! the next.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::{
    Client, ClientError,
    v1::{NewMessage, PutStatus},
};

/// How a producer packs.
#[derive(Clone, Copy, Debug)]
pub struct ProducerOptions {
    /// Messages of one request at most.
    pub messages: usize,
    /// Bytes of one request at most.
    pub bytes: usize,
    /// How long a request waits for company.
    pub linger: Duration,
    /// Requests on their way at once.
    pub in_flight: usize,
    /// Messages that wait at most before [`Producer::put`] itself waits.
    pub waiting: usize,
}

impl Default for ProducerOptions {
    fn default() -> Self {
        Self {
            messages: 1_024,
            bytes: 256 << 10,
            linger: Duration::from_millis(1),
            in_flight: 4,
            waiting: 16_384,
        }
    }
}

type Answer = Result<PutStatus, String>;

/// Puts messages into one queue. Cheap to clone; ends with its last clone, after everything that was taken is answered.
#[derive(Clone, Debug)]
pub struct Producer {
    sender: mpsc::Sender<(NewMessage, oneshot::Sender<Answer>)>,
}

impl Producer {
    /// Starts a producer on the present tokio runtime.
    pub fn start(client: Client, queue: impl Into<String>, options: ProducerOptions) -> Self {
        let (sender, receiver) = mpsc::channel(options.waiting.max(1));
        tokio::spawn(pack(client, queue.into(), options, receiver));
        Self { sender }
    }

    /// Puts one message and returns what became of it.
    ///
    /// # Errors
    /// What the cluster says of the request that it went with.
    pub async fn put(&self, message: NewMessage) -> Result<PutStatus, String> {
        let (answer, answered) = oneshot::channel();
        let ended = || "the producer has ended".to_owned();
        self.sender.send((message, answer)).await.map_err(|_| ended())?;
        answered.await.unwrap_or_else(|_| Err(ended()))
    }
}

async fn pack(
    client: Client,
    queue: String,
    options: ProducerOptions,
    mut receiver: mpsc::Receiver<(NewMessage, oneshot::Sender<Answer>)>,
) {
    let mut flights = JoinSet::new();
    // The first of the next request, if the last was full.
    let mut first = None;
    loop {
        let Some(taken) = (match first.take() {
            Some(taken) => Some(taken),
            None => receiver.recv().await,
        }) else {
            break;
        };
        let mut bytes = size(&taken.0);
        let (mut messages, mut answers) = (vec![taken.0], vec![taken.1]);
        let end = tokio::time::Instant::now() + options.linger;
        while messages.len() < options.messages {
            let next = match receiver.try_recv() {
                Ok(next) => next,
                Err(_) => match tokio::time::timeout_at(end, receiver.recv()).await {
                    Ok(Some(next)) => next,
                    Ok(None) | Err(_) => break,
                },
            };
            if bytes + size(&next.0) > options.bytes {
                first = Some(next);
                break;
            }
            bytes += size(&next.0);
            messages.push(next.0);
            answers.push(next.1);
        }
        if flights.len() >= options.in_flight.max(1) {
            let _ = flights.join_next().await;
        }
        let (client, queue) = (client.clone(), queue.clone());
        flights.spawn(async move {
            let statuses = client.put(&queue, messages).await;
            distribute(statuses, answers);
        });
    }
    while flights.join_next().await.is_some() {}
}

fn distribute(statuses: Result<Vec<PutStatus>, ClientError>, answers: Vec<oneshot::Sender<Answer>>) {
    match statuses {
        Ok(statuses) => {
            let mut statuses = statuses.into_iter();
            for answer in answers {
                let _ = answer.send(statuses.next().ok_or_else(|| "the answer is too short".to_owned()));
            }
        }
        Err(error) => {
            let error = error.to_string();
            for answer in answers {
                let _ = answer.send(Err(error.clone()));
            }
        }
    }
}

fn size(message: &NewMessage) -> usize {
    32 + message.key.len() + message.payload.len() + message.dedup_id.len()
}
