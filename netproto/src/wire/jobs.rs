//! The client's calls about crawl jobs.

use std::time::Duration;

use tonic::{Request, Response, Status, Streaming};

use super::{
    Client, ClientError, Connection,
    v1::{
        ExportChunk, ExportRequest, Job, JobOnNodeReply, JobOnNodeRequest, JobState, ListJobsRequest,
        SetJobStateRequest, ShowJobRequest, SubmitJobRequest, jobs_client::JobsClient,
    },
};

/// Bytes of a message: a listing of some thousand jobs, or a piece of a file.
const MESSAGE_BYTES: usize = 8 << 20;
/// How long one node may take to say what it does for a job.
const NODE_PATIENCE: Duration = Duration::from_secs(3);

impl Client {
    async fn jobs<Q: Clone, T, F>(
        &self,
        request: Q,
        call: impl Fn(JobsClient<Connection>, Q) -> F,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let answered = self
            .with_members(|channel| {
                call(JobsClient::new(channel).max_decoding_message_size(MESSAGE_BYTES), request.clone())
            })
            .await;
        answered.map(Response::into_inner)
    }

    /// Creates a job unless it is there; returns whether it was created.
    ///
    /// # Errors
    /// See [`with_members`](Self::with_members); likewise below.
    pub async fn submit_job(&self, request: SubmitJobRequest) -> Result<bool, ClientError> {
        let reply =
            self.jobs(request, |mut client, request| async move { client.submit_job(request).await }).await?;
        Ok(reply.created)
    }

    /// All jobs.
    pub async fn list_jobs(&self) -> Result<Vec<Job>, ClientError> {
        let request = ListJobsRequest { group: 0 };
        let reply =
            self.jobs(request, |mut client, request| async move { client.list_jobs(request).await }).await?;
        Ok(reply.jobs)
    }

    /// State and numbers of a job.
    pub async fn show_job(&self, name: &str) -> Result<Job, ClientError> {
        let request = ShowJobRequest { name: name.to_owned() };
        self.jobs(request, |mut client, request| async move { client.show_job(request).await }).await
    }

    /// Pauses, resumes or cancels a job.
    pub async fn set_job_state(&self, name: &str, state: JobState) -> Result<(), ClientError> {
        let request = SetJobStateRequest { name: name.to_owned(), state: state as i32 };
        let reply = self
            .jobs(request, |mut client, request| async move { client.set_job_state(request).await })
            .await;
        reply.map(drop)
    }

    /// What one node does for a job, with the newest `lines` of its log.
    pub async fn job_on_node(
        &self,
        name: &str,
        node: u64,
        lines: u32,
    ) -> Result<JobOnNodeReply, ClientError> {
        let request = JobOnNodeRequest { name: name.to_owned(), node, lines };
        let call = |mut client: JobsClient<Connection>, request| async move {
            let mut request = Request::new(request);
            request.set_timeout(NODE_PATIENCE);
            client.job_on_node(request).await
        };
        // Somebody who is down does not answer a second time either.
        match tokio::time::timeout(NODE_PATIENCE, self.jobs(request, call)).await {
            Ok(reply) => reply,
            Err(_) => Err(ClientError::Refused(Status::unavailable(format!("node {node} does not answer")))),
        }
    }

    /// The files with the records that one node made of a job.
    pub async fn export_job(&self, name: &str, node: u64) -> Result<Streaming<ExportChunk>, ClientError> {
        let request = ExportRequest { name: name.to_owned(), node };
        self.jobs(request, |mut client, request| async move { client.export(request).await }).await
    }
}
