//! How does a file behind a URL come into a source pod, whole or not at all?
//!
//! `gridcast-agent fetch` is the init container before a source that is told by URL. One GET, continued where it broke:
//! what follows must be of the same version of the file as what is there, by the server's own word (ETag, date, length).
//! A file that changes meanwhile is an error, since half of each would be staged and verified everywhere.
//!
//! The file has its name only when it is complete; whoever looks at the directory after success finds nothing else in it.

mod client;
mod pin;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use futures::StreamExt as _;
use gridcast_core::failure::chain;
use reqwest::{Client, Response, StatusCode, Url, header};
use thiserror::Error;
use tokio::time::{Instant, sleep};

use client::{Anonymous, shown};
use pin::{Pin, Position};

/// Environment variable with the value of the header `Authorization`.
const AUTHORIZATION: &str = "GRIDCAST_AUTHORIZATION";

/// Attempts in a row that bring nothing new, and all of them.
const MAX_FRUITLESS: u32 = 8;
const MAX_ATTEMPTS: u32 = 1000;

/// Pause after a fruitless attempt, doubled until the longest: half a minute in all, in which a server that was
/// started together with the pod is there.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Longest pause that a server may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);

/// Between two lines that tell how far it is.
const PROGRESS: Duration = Duration::from_secs(10);

/// The file's name while it is not complete.
const PART: &str = ".gridcast-fetch.part";

/// Longest file name of Linux' file systems.
const MAX_FILE_NAME: usize = 255;

/// Kubernetes keeps that many bytes of a container's last words.
const MAX_LAST_WORDS: usize = 4096;

/// Download one file over HTTP into a directory.
///
/// GRIDCAST_AUTHORIZATION is sent as the header Authorization, to the host of the URL only. SSL_CERT_FILE and SSL_CERT_DIR
/// name authorities to trust instead of the system's; where the system has none, Mozilla's are trusted.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Where the file is: http or https
    #[arg(long)]
    pub url: String,
    /// Where it goes
    #[arg(long)]
    pub directory: PathBuf,
    /// Its name there [default: the last part of the URL's path]
    #[arg(long, value_name = "FILE")]
    pub name: Option<String>,
    /// File for the last line of an error, if it is there
    #[arg(long, default_value = "/dev/termination-log", value_name = "FILE")]
    pub termination_log: PathBuf,
}

/// Why there is no file. Neither URL nor cause ever shows a password, a query or the header.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the message of each variant says it")]
pub enum FetchError {
    #[error("--url: {0}; write it as https://HOST/PATH/FILE")]
    Url(String),
    #[error("--url: {0} does not end with the name of a file; give --name")]
    NoName(String),
    #[error("--name: {0:?} is not the name of a file")]
    Name(String),
    #[error("{AUTHORIZATION} cannot be a header: one line of ASCII, like `Bearer TOKEN`")]
    Authorization,
    #[error("there can be no HTTP client: {0}; if SSL_CERT_FILE is set, it must hold certificates in PEM")]
    Client(String),
    #[error("{url}: the server answered {status}{}", hint(*status))]
    Status { url: String, status: StatusCode },
    #[error("{url}: {why}")]
    Redirect { url: String, why: String },
    #[error(
        "{url}: its certificate is not trusted ({why}); mount its authority's certificate and set SSL_CERT_FILE"
    )]
    Certificate { url: String, why: String },
    #[error("{url} changed while it was read ({what}); start again when nobody writes to it")]
    Changed { url: String, what: String },
    #[error("{url}: {why}; given up after {attempts} attempts with {received} bytes")]
    GaveUp { url: String, why: String, attempts: u32, received: u64 },
    #[error("cannot {what} {path}: {source}{}", room(source))]
    Disk { what: &'static str, path: PathBuf, source: io::Error },
    #[error("{url}: stopped by a signal with {received} bytes")]
    Stopped { url: String, received: u64 },
}

fn hint(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            "; name a Secret with the key `authorization` that may read it"
        }
        StatusCode::NOT_FOUND | StatusCode::GONE => "; look at the URL",
        _ => "",
    }
}

fn room(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; the node's disk needs more room",
        _ => "",
    }
}

impl FetchError {
    /// One word for logs and conditions.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Url(_) | Self::NoName(_) | Self::Name(_) | Self::Authorization => "InvalidRequest",
            Self::Client(_) => "ClientUnusable",
            Self::Status { .. } | Self::Redirect { .. } | Self::Certificate { .. } | Self::GaveUp { .. } => {
                "SourceUnreadable"
            }
            Self::Changed { .. } => "SourceChanged",
            Self::Disk { source, .. } if source.kind() == io::ErrorKind::StorageFull => "DiskFull",
            Self::Disk { .. } => "TargetUnusable",
            Self::Stopped { .. } => "Cancelled",
        }
    }

    /// 2 = asked for what cannot be, 1 = it did not work.
    fn exit_code(&self) -> u8 {
        if self.reason() == "InvalidRequest" { 2 } else { 1 }
    }
}

/// Downloads, tells what came of it on standard error and in the container's last words.
pub async fn run(options: Options, stop: impl Future<Output = ()>) -> ExitCode {
    let authorization = std::env::var_os(AUTHORIZATION);
    let outcome = match Fetch::new(&options, authorization.as_deref()) {
        Ok(mut fetch) => {
            let outcome = tokio::select! {
                outcome = fetch.run() => outcome,
                () = stop => {
                    Err(FetchError::Stopped { url: shown(&fetch.url), received: fetch.received })
                }
            };
            if outcome.is_err() {
                let _ = fs::remove_file(&fetch.part);
            }
            outcome
        }
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = chain(&error);
            eprintln!("gridcast-agent fetch: {}: {text}", error.reason());
            last_words(&options.termination_log, &text);
            ExitCode::from(error.exit_code())
        }
    }
}

/// Only where kubelet has made the file: elsewhere it would be litter.
fn last_words(path: &Path, text: &str) {
    let end = text.floor_char_boundary(MAX_LAST_WORDS);
    if let Ok(mut file) = OpenOptions::new().write(true).truncate(true).open(path) {
        let _ = file.write_all(&text.as_bytes()[..end]);
    }
}

/// How one attempt ended.
enum Attempt {
    Complete,
    /// To be tried again: why, and how long the server wants to be left alone.
    Broken(String, Option<Duration>),
}

struct Fetch {
    client: Client,
    url: Url,
    part: PathBuf,
    path: PathBuf,
    file: File,
    pin: Pin,
    received: u64,
    told: Instant,
}

impl Fetch {
    fn new(options: &Options, authorization: Option<&std::ffi::OsStr>) -> Result<Self, FetchError> {
        let Options { url, directory, name, termination_log: _ } = options;
        let url = client::parse(url)?;
        let name = file_name(name.as_deref(), &url)?;
        let client = client::build(authorization)?;
        let disk = |what, path: &Path| {
            let path = path.to_owned();
            move |source| FetchError::Disk { what, path, source }
        };
        fs::create_dir_all(directory).map_err(disk("make", directory))?;
        let part = directory.join(PART);
        // What an attempt before this container's restart has left is of no known version.
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o644)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&part)
            .map_err(disk("make", &part))?;
        let (path, pin, told) = (directory.join(name), Pin::default(), Instant::now());
        Ok(Self { client, url, part, path, file, pin, received: 0, told })
    }

    async fn run(&mut self) -> Result<(), FetchError> {
        let began = Instant::now();
        self.download().await?;
        // The volume ends with the pod: there is no crash that would find the file unwritten.
        fs::rename(&self.part, &self.path).map_err(|source| FetchError::Disk {
            what: "name",
            path: self.path.clone(),
            source,
        })?;
        let seconds = began.elapsed().as_secs_f64();
        eprintln!("gridcast-agent fetch: {} bytes of {} in {seconds:.1} s", self.received, shown(&self.url));
        Ok(())
    }

    async fn download(&mut self) -> Result<(), FetchError> {
        let mut furthest = 0;
        let mut fruitless = 0;
        let mut pause = FIRST_PAUSE;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let (why, after) = match self.attempt().await? {
                Attempt::Complete => return Ok(()),
                Attempt::Broken(why, after) => (why, after),
            };
            if self.received > furthest {
                furthest = self.received;
                fruitless = 0;
                pause = FIRST_PAUSE;
            }
            fruitless += 1;
            if fruitless == MAX_FRUITLESS || attempts == MAX_ATTEMPTS {
                let (url, received) = (shown(&self.url), furthest);
                return Err(FetchError::GaveUp { url, why, attempts, received });
            }
            let wait = after.unwrap_or_default().clamp(pause, MAX_RETRY_AFTER);
            eprintln!(
                "gridcast-agent fetch: {}: {why}; once more in {:.1} s",
                shown(&self.url),
                wait.as_secs_f64()
            );
            sleep(wait).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    async fn attempt(&mut self) -> Result<Attempt, FetchError> {
        let mut request = self.client.get(self.url.clone());
        if self.received > 0
            && let Some(validator) = self.pin.validator()
        {
            request = request
                .header(header::RANGE, format!("bytes={}-", self.received))
                .header(header::IF_RANGE, validator);
        }
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) if error.is_redirect() => {
                let why = chain(&Anonymous(&error));
                return Err(FetchError::Redirect { url: shown(&self.url), why });
            }
            Err(error) => {
                return match client::distrust(&error) {
                    Some(why) => Err(FetchError::Certificate { url: shown(&self.url), why }),
                    None => Ok(Attempt::Broken(chain(&Anonymous(&error)), None)),
                };
            }
        };
        let status = response.status();
        match status.as_u16() {
            200 | 206 | 416 => {}
            408 | 425 | 429 | 500 | 502 | 503 | 504 => {
                let why = format!("the server answered {status}");
                return Ok(Attempt::Broken(why, client::retry_after(response.headers())));
            }
            _ => return Err(FetchError::Status { url: shown(&self.url), status }),
        }
        let position = self.pin.check(status, response.headers(), self.received);
        match position.map_err(|what| FetchError::Changed { url: shown(&self.url), what })? {
            Position::Here => {}
            Position::Start => self.rewind()?,
        }
        self.body(response).await
    }

    fn rewind(&mut self) -> Result<(), FetchError> {
        let rewound = self.file.set_len(0).and_then(|()| self.file.rewind());
        rewound.map_err(|source| FetchError::Disk { what: "write", path: self.part.clone(), source })?;
        self.received = 0;
        Ok(())
    }

    async fn body(&mut self, response: Response) -> Result<Attempt, FetchError> {
        let mut body = response.bytes_stream();
        while let Some(block) = body.next().await {
            let block = match block {
                Ok(block) => block,
                Err(error) => return Ok(Attempt::Broken(chain(&Anonymous(&error)), None)),
            };
            self.file.write_all(&block).map_err(|source| FetchError::Disk {
                what: "write",
                path: self.part.clone(),
                source,
            })?;
            self.received += block.len() as u64;
            self.tell();
        }
        match self.pin.length() {
            Some(length) if self.received < length => {
                Ok(Attempt::Broken(format!("it ended after {} of {length} bytes", self.received), None))
            }
            Some(length) if self.received > length => {
                let what = format!("{} bytes instead of {length}", self.received);
                Err(FetchError::Changed { url: shown(&self.url), what })
            }
            _ => Ok(Attempt::Complete),
        }
    }

    fn tell(&mut self) {
        if self.told.elapsed() < PROGRESS {
            return;
        }
        self.told = Instant::now();
        let of = self.pin.length().map(|length| format!(" of {length}")).unwrap_or_default();
        eprintln!("gridcast-agent fetch: {}{of} bytes of {}", self.received, shown(&self.url));
    }
}

/// As given, or as `gridcast local` names it: the last part of the path, as it is written.
fn file_name(given: Option<&str>, url: &Url) -> Result<String, FetchError> {
    let usable = |name: &str| {
        !name.is_empty()
            && name != "."
            && name != ".."
            && name != PART
            && name.len() <= MAX_FILE_NAME
            && !name.contains('/')
            && !name.contains(char::is_control)
    };
    match given {
        Some(name) if usable(name) => Ok(name.to_owned()),
        Some(name) => Err(FetchError::Name(name.to_owned())),
        None => {
            let last = url.path_segments().and_then(|mut parts| parts.next_back());
            let last = last.filter(|name| usable(name));
            last.map(str::to_owned).ok_or_else(|| FetchError::NoName(shown(url)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_name_that_was_meant() {
        let url = |text: &str| Url::parse(text).unwrap();
        let name = |given, text| file_name(given, &url(text));
        assert_eq!(name(None, "https://h/a/b%20c.tar?x=1").unwrap(), "b%20c.tar");
        assert_eq!(name(Some("d"), "https://h/").unwrap(), "d");
        for given in ["", "..", "a/b", PART, "a\nb"] {
            assert!(matches!(name(Some(given), "https://h/a"), Err(FetchError::Name(_))), "{given:?}");
        }
        let none = name(None, "https://me:secret@h/?token=1").unwrap_err();
        assert_eq!((none.exit_code(), none.to_string().contains("secret")), (2, false));
    }
}
