//! The service for crawl jobs. A job's queue lives in the group that its name falls to, and so does what is known of it;
//! its records are on the nodes.

use std::{io::Read as _, sync::Arc};

use bytes::Bytes;
use dolomedes_netproto::wire::v1::{self, jobs_client::JobsClient, jobs_server::Jobs as JobsApi};
use dolomedes_raft::{
    command::{Command, QueueState, Reply},
    group::Group,
    machine::read::{QueueInfo, State},
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::{Api, MESSAGE_BYTES, read, submit, unexpected};
use crate::{
    crawl::queue_rules,
    jobs::{
        Jobs, Spec,
        files::{Deliverable, deliverables},
        spec::{PREFIX, check_name},
    },
};

/// What was done for a job is remembered for its whole life, so that it can be done again if records are lost.
const FOR_EVER_MS: u64 = u64::MAX / 4;
/// Jobs of one group in one listing at most.
const MOST_JOBS: usize = 1_000;
/// Bytes of a file in one chunk of an export.
const CHUNK: usize = 256 << 10;
/// Chunks of an export that wait to be sent.
const CHUNKS_AHEAD: usize = 4;
/// Lines of a log in one answer at most.
const MOST_LINES: u32 = 500;

pub(super) struct JobService {
    pub(super) api: Api,
    pub(super) jobs: Arc<Jobs>,
}

/// A client for passing calls on.
fn client(channel: tonic::transport::Channel) -> JobsClient<tonic::transport::Channel> {
    JobsClient::new(channel).max_decoding_message_size(MESSAGE_BYTES).max_encoding_message_size(MESSAGE_BYTES)
}

/// Passes a call on as it is.
macro_rules! there {
    ($method:ident) => {
        |channel, request| async move { client(channel).$method(request).await }
    };
}

impl JobService {
    fn group_of(&self, job: &str) -> u32 {
        self.api.node.group_of(&queue_name(job))
    }
}

#[tonic::async_trait]
impl JobsApi for JobService {
    async fn submit_job(
        &self,
        request: Request<v1::SubmitJobRequest>,
    ) -> Result<Response<v1::SubmitJobReply>, Status> {
        let group = self.group_of(&request.get_ref().name);
        self.api.serve(group, request, submit_job, there!(submit_job)).await
    }

    async fn list_jobs(
        &self,
        request: Request<v1::ListJobsRequest>,
    ) -> Result<Response<v1::ListJobsReply>, Status> {
        // Every group keeps its own jobs, so each is asked, wherever it is led.
        let (metadata, _, v1::ListJobsRequest { group: only }) = request.into_parts();
        let mut jobs = Vec::new();
        for group in self.api.node.queue_groups().filter(|group| only == 0 || only == *group) {
            let here = |group: Group, _: v1::ListJobsRequest| async move {
                let found = read(&group, |state| {
                    let infos = state.queues_named(PREFIX, MOST_JOBS)?;
                    infos
                        .into_iter()
                        .map(|info| Ok((state.spec(info.id)?, info)))
                        .collect::<Result<Vec<_>, _>>()
                })
                .await?;
                let number = group.number();
                let jobs = found.into_iter().map(|(spec, info)| describe(number, info, spec.as_ref()));
                Ok(v1::ListJobsReply { jobs: jobs.collect() })
            };
            let mut one = Request::new(v1::ListJobsRequest { group });
            *one.metadata_mut() = metadata.clone();
            jobs.extend(self.api.serve(group, one, here, there!(list_jobs)).await?.into_inner().jobs);
        }
        jobs.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Response::new(v1::ListJobsReply { jobs }))
    }

    async fn show_job(&self, request: Request<v1::ShowJobRequest>) -> Result<Response<v1::Job>, Status> {
        let group = self.group_of(&request.get_ref().name);
        let here = |group: Group, request: v1::ShowJobRequest| async move {
            let (info, spec) = find(&group, &request.name).await?;
            Ok(describe(group.number(), info, spec.as_ref()))
        };
        self.api.serve(group, request, here, there!(show_job)).await
    }

    async fn set_job_state(
        &self,
        request: Request<v1::SetJobStateRequest>,
    ) -> Result<Response<v1::SetJobStateReply>, Status> {
        let group = self.group_of(&request.get_ref().name);
        let here = |group: Group, request: v1::SetJobStateRequest| async move {
            let state = match request.state() {
                v1::JobState::Running => QueueState::Running,
                v1::JobState::Paused => QueueState::Paused,
                v1::JobState::Cancelled => QueueState::Cancelled,
                other => {
                    return Err(Status::invalid_argument(format!(
                        "state cannot be set to {}; expected RUNNING, PAUSED or CANCELLED",
                        other.as_str_name()
                    )));
                }
            };
            let (info, _) = find(&group, &request.name).await?;
            submit(&group, Command::SetQueueState { queue: info.id, state }, None).await?;
            Ok(v1::SetJobStateReply {})
        };
        self.api.serve(group, request, here, there!(set_job_state)).await
    }

    async fn job_on_node(
        &self,
        request: Request<v1::JobOnNodeRequest>,
    ) -> Result<Response<v1::JobOnNodeReply>, Status> {
        let jobs = self.jobs.clone();
        let here = |request: v1::JobOnNodeRequest| async move {
            let found = jobs.on_node(&request.name, request.lines.min(MOST_LINES) as usize);
            Ok(v1::JobOnNodeReply {
                working: found.working,
                in_flight: found.in_flight,
                hosts: found.hosts,
                pages: found.pages,
                trouble: found.trouble,
                log: found.log.into_iter().map(|(at_ms, text)| v1::LogLine { at_ms, text }).collect(),
            })
        };
        let node = request.get_ref().node;
        self.api.serve_on(node, request, here, there!(job_on_node)).await
    }

    type ExportStream = ReceiverStream<Result<v1::ExportChunk, Status>>;

    async fn export(
        &self,
        request: Request<v1::ExportRequest>,
    ) -> Result<Response<Self::ExportStream>, Status> {
        let node = request.get_ref().node;
        let group = self.group_of(&request.get_ref().name);
        let (jobs, queue) = (self.jobs.clone(), queue_name(&request.get_ref().name));
        let own = self.api.node.clone();
        let here = |request: v1::ExportRequest| async move {
            let found = own.queue(group, &queue).await;
            let found = found.map_err(|error| Status::unavailable(error.to_string()))?;
            let (info, _) = found.ok_or_else(|| no_job(&request.name))?;
            let dir = jobs.place(&request.name, (group, info.id));
            let files = tokio::task::spawn_blocking(move || deliverables(&dir))
                .await
                .map_err(|error| Status::internal(error.to_string()))?
                .map_err(|error| Status::internal(format!("{error:#}")))?;
            let (sender, receiver) = mpsc::channel(CHUNKS_AHEAD);
            // Ends with the files, or with whoever reads them.
            tokio::task::spawn_blocking(move || send_files(&files, &sender));
            Ok(ReceiverStream::new(receiver))
        };
        let there = |channel, request| async move {
            let stream = client(channel).export(request).await?.into_inner();
            Ok(Response::new(super::pass_stream_on(stream, CHUNKS_AHEAD)))
        };
        self.api.serve_on(node, request, here, there).await
    }
}

fn queue_name(job: &str) -> String {
    format!("{PREFIX}{job}")
}

async fn submit_job(group: Group, request: v1::SubmitJobRequest) -> Result<v1::SubmitJobReply, Status> {
    let bad = |error: anyhow::Error| Status::invalid_argument(format!("{error:#}"));
    check_name(&request.name).map_err(bad)?;
    let options = Spec::options(&request.options).map_err(bad)?;
    let spec = Spec::new(&request.seeds, options, request.ca).map_err(bad)?;
    let nowhere = std::path::PathBuf::from("/");
    let config = crate::config::resolve::job(spec.seeds.clone(), &spec.options, nowhere.clone(), nowhere)
        .map_err(bad)?;
    crate::crawl::check(&config).map_err(bad)?;
    let bytes = spec.bytes().map_err(|error| Status::internal(format!("{error:#}")))?;
    let create = Command::CreateQueue {
        name: queue_name(&request.name),
        config: queue_rules(&config, FOR_EVER_MS),
        spec: bytes.into(),
    };
    let reply = submit(&group, create, None).await?;
    let Reply::Queue { created, .. } = reply else { return Err(unexpected(&reply)) };
    if !created {
        let (_, stored) = find(&group, &request.name).await?;
        let stored = stored.and_then(|stored| Spec::read(&stored).ok());
        if !stored.is_some_and(|stored| stored.is_same(&spec)) {
            return Err(Status::already_exists(format!(
                "there is another job `{}`; choose another name",
                request.name
            )));
        }
    }
    Ok(v1::SubmitJobReply { created })
}

async fn find(group: &Group, job: &str) -> Result<(QueueInfo, Option<Bytes>), Status> {
    let name = queue_name(job);
    let look = move |state: &State<'_>| {
        let Some(queue) = state.queue_by_name(&name)? else { return Ok(None) };
        let spec = state.spec(queue)?;
        Ok(state.queue(queue)?.map(|info| (info, spec)))
    };
    read(group, look).await?.ok_or_else(|| no_job(job))
}

fn no_job(name: &str) -> Status {
    Status::not_found(format!("there is no job `{name}`"))
}

fn describe(group: u32, info: QueueInfo, spec: Option<&Bytes>) -> v1::Job {
    let state = match info.state {
        QueueState::Running => v1::JobState::Running,
        QueueState::Paused => v1::JobState::Paused,
        QueueState::Cancelled => v1::JobState::Cancelled,
        QueueState::Finished | QueueState::BudgetReached => v1::JobState::Finished,
    };
    let counters = info.counters;
    let spec = spec.and_then(|spec| Spec::read(spec).ok());
    v1::Job {
        name: info.name.strip_prefix(PREFIX).unwrap_or(&info.name).to_owned(),
        state: state as i32,
        budget_reached: info.state == QueueState::BudgetReached,
        counts: Some(v1::JobCounts {
            urls: counters.accepted,
            ready: counters.ready,
            delayed: counters.delayed,
            leased: counters.leased,
            done: counters.done,
            dead: counters.dead,
            pages: counters.units,
            bytes: counters.bytes,
            retries: counters.retries,
            lost: counters.lost,
            hosts: counters.keys,
            hosts_leased: info.leased_keys,
        }),
        group,
        options: spec.as_ref().and_then(|spec| spec.options_json().ok()).unwrap_or_default(),
        seeds: spec.map(|spec| spec.seeds).unwrap_or_default(),
    }
}

/// Reads files into chunks.
fn send_files(files: &[Deliverable], to: &mpsc::Sender<Result<v1::ExportChunk, Status>>) {
    for file in files {
        if let Err(error) = send_file(file, to) {
            let text = format!("cannot read `{}`: {error}", file.path.display());
            let _ = to.blocking_send(Err(Status::data_loss(text)));
            return;
        }
    }
}

fn send_file(file: &Deliverable, to: &mpsc::Sender<Result<v1::ExportChunk, Status>>) -> std::io::Result<()> {
    let mut from = std::fs::File::open(&file.path)?;
    let mut left = file.bytes;
    // An empty file is one, too.
    loop {
        let mut data = vec![0; usize::try_from(left).unwrap_or(CHUNK).min(CHUNK)];
        from.read_exact(&mut data)?;
        left -= data.len() as u64;
        let chunk = v1::ExportChunk { file: file.name.clone(), data: data.into() };
        if left == 0 || to.is_closed() {
            let _ = to.blocking_send(Ok(chunk));
            return Ok(());
        }
        let _ = to.blocking_send(Ok(chunk));
    }
}
