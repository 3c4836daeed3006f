//! What a local site is asked ([`Request`]) and what it answers: an honest [`Reply`], or a [`Script`] of bytes, waits
//! and breaks for what an HTTP library would refuse to send.

use std::time::{Duration, Instant};

use bytes::Bytes;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Request {
    /// When its head had been read.
    pub at: Instant,
    /// Host name as asked for, in lower case, without the port.
    pub host: String,
    /// The port of the listener that it came in by.
    pub port: u16,
    /// Whether it came in over TLS.
    pub secure: bool,
    /// Method.
    pub method: String,
    /// Path and query as sent.
    pub path: String,
    /// `HTTP/1.1` or `HTTP/2`.
    pub protocol: &'static str,
    /// Names in lower case, in the order sent.
    pub headers: Vec<(String, String)>,
    /// Number of the connection that it came in by, counted over the whole site.
    pub connection: u64,
    /// 1 for the first request of this host and path, then 2, 3 …
    pub visit: u64,
}

impl Request {
    /// The first header of this (lower-case) name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The path without the query.
    pub fn path_only(&self) -> &str {
        self.path.split_once('?').map_or(&self.path, |(path, _)| path)
    }

    /// The query without its question mark; empty if there is none.
    pub fn query(&self) -> &str {
        self.path.split_once('?').map_or("", |(_, query)| query)
    }

    /// Scheme and authority that it was sent to.
    pub fn origin(&self) -> String {
        self.origin_of(&self.host)
    }

    /// Scheme and authority of another host behind the same listener.
    pub fn origin_of(&self, host: &str) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{host}:{}", self.port)
    }
}

/// A well-formed answer. Its length is declared and kept, and the connection lives on.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// As sent; values may be any bytes.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Pieces and how often each is sent, so that a large body costs no memory.
    pub body: Vec<(Bytes, u64)>,
    /// How long the server thinks before it answers.
    pub delay: Duration,
}

impl Reply {
    /// An empty answer with this status.
    pub fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new(), delay: Duration::ZERO }
    }

    /// 200 with this content type and body.
    pub fn with(content_type: &str, body: impl Into<Bytes>) -> Self {
        Self::status(200).header("Content-Type", content_type).body(body)
    }

    /// 200 with this HTML as it stands.
    pub fn html(body: impl Into<String>) -> Self {
        Self::with("text/html; charset=utf-8", body.into())
    }

    /// 200 with this text.
    pub fn text(body: impl Into<String>) -> Self {
        Self::with("text/plain; charset=utf-8", body.into())
    }

    /// An HTML page with a title and a link to each of `links`.
    pub fn page<S: AsRef<str>>(title: &str, links: impl IntoIterator<Item = S>) -> Self {
        let mut html =
            format!("<!doctype html><html><head><title>{title}</title></head><body><h1>{title}</h1>\n");
        for link in links {
            let link = link.as_ref();
            html.push_str(&format!("<p><a href=\"{}\">a link</a></p>\n", link.replace('&', "&amp;")));
        }
        html.push_str("</body></html>\n");
        Self::html(html)
    }

    /// A redirect with this status to this place.
    pub fn redirect(status: u16, location: impl AsRef<[u8]>) -> Self {
        Self::status(status).header("Location", location)
    }

    /// 404 with a short page.
    pub fn not_found() -> Self {
        let mut reply = Self::page("Not found", [""; 0]);
        reply.status = 404;
        reply
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// Appends to the body.
    pub fn body(self, piece: impl Into<Bytes>) -> Self {
        self.repeated(piece, 1)
    }

    /// Appends a piece `times` times.
    pub fn repeated(mut self, piece: impl Into<Bytes>, times: u64) -> Self {
        self.body.push((piece.into(), times));
        self
    }

    /// Sets the status.
    pub fn code(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// Answers only after this long.
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Bytes of the body.
    pub fn length(&self) -> u64 {
        self.body.iter().map(|(piece, times)| piece.len() as u64 * times).sum()
    }

    /// Status line and headers of HTTP/1.1, with the true length, up to and with the empty line.
    pub(crate) fn head(&self) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {} Status\r\n", self.status).into_bytes();
        for (name, value) in &self.headers {
            head.extend_from_slice(name.as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value);
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(format!("Content-Length: {}\r\n\r\n", self.length()).as_bytes());
        head
    }
}

/// One step of a [`Script`].
#[derive(Clone, Debug)]
pub enum Step {
    /// Sends bytes, so many times over.
    Send(Bytes, u64),
    /// Sends bytes one by one, so long apart.
    Drip(Bytes, Duration),
    /// Does nothing for so long, or until the client hangs up.
    Wait(Duration),
    /// Ends the connection with a TCP reset; nothing follows.
    Reset,
}

/// Longest wait of a script. It bounds how long a test can be held up by a server that is meant to hang.
pub const HANG: Duration = Duration::from_secs(90);

/// What is done on the connection, byte by byte. Over HTTP/2 a script ends in a reset stream.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// In this order.
    pub steps: Vec<Step>,
    /// Whether the connection serves further requests afterwards; otherwise it is closed.
    pub keep: bool,
}

impl Script {
    /// Does nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts with a 200 head with these header lines (each ended by CRLF) and the empty line.
    pub fn ok(header_lines: &str) -> Self {
        Self::new().send(format!("HTTP/1.1 200 OK\r\n{header_lines}\r\n"))
    }

    /// Starts with a head of an HTML page whose body is chunked.
    pub fn chunked() -> Self {
        Self::ok("Content-Type: text/html\r\nTransfer-Encoding: chunked\r\n")
    }

    /// Sends bytes.
    pub fn send(self, bytes: impl Into<Bytes>) -> Self {
        self.repeat(bytes, 1)
    }

    /// Sends bytes `times` times.
    pub fn repeat(mut self, bytes: impl Into<Bytes>, times: u64) -> Self {
        self.steps.push(Step::Send(bytes.into(), times));
        self
    }

    /// Sends one well-formed chunk.
    pub fn chunk(self, data: impl AsRef<[u8]>) -> Self {
        let data = data.as_ref();
        let mut chunk = format!("{:x}\r\n", data.len()).into_bytes();
        chunk.extend_from_slice(data);
        chunk.extend_from_slice(b"\r\n");
        self.send(chunk)
    }

    /// Sends bytes one at a time.
    pub fn drip(mut self, bytes: impl Into<Bytes>, every: Duration) -> Self {
        self.steps.push(Step::Drip(bytes.into(), every));
        self
    }

    /// Waits.
    pub fn wait(mut self, time: Duration) -> Self {
        self.steps.push(Step::Wait(time.min(HANG)));
        self
    }

    /// Waits for the client to give up, at most [`HANG`].
    pub fn hang(self) -> Self {
        self.wait(HANG)
    }

    /// Ends with a TCP reset.
    pub fn reset(mut self) -> Self {
        self.steps.push(Step::Reset);
        self
    }

    /// Keeps the connection open for the next request.
    pub fn keep(mut self) -> Self {
        self.keep = true;
        self
    }
}

/// What a host answers.
#[derive(Clone, Debug)]
pub enum Answer {
    /// By the rules.
    Reply(Reply),
    /// Against them.
    Script(Script),
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self::Reply(reply)
    }
}

impl From<Script> for Answer {
    fn from(script: Script) -> Self {
        Self::Script(script)
    }
}
