//! Where a dataset comes from, checked before anything is made.
//!
//! A local source is a directory or a file of this machine: a `node` path, the directory that `--volume` gives for a
//! claim, or one that this command fills from ConfigMap and Secret documents or from a URL. All of it is looked at
//! first, so that a device in the tree, or a file that cannot be read, is refused with nothing made.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, FileExt as _, FileTypeExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use futures::StreamExt as _;

use crate::failure::{Failure, OrFailed as _, chain};

/// Where the content of a dataset is.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// On this machine.
    Path(PathBuf),
    /// Files by name, from a ConfigMap or a Secret.
    Keys {
        files: BTreeMap<String, Vec<u8>>,
        /// Readable by root only.
        secret: bool,
    },
    /// A file behind a URL, and its name in the dataset.
    Url { url: reqwest::Url, file: String },
}

/// Refuses a tree that cannot be staged: what is not there, cannot be read, or is neither directory, file nor symlink.
pub(crate) fn check(field: &str, path: &Path) -> Result<(), Failure> {
    let refuse = |path: &Path, why: &str| Failure::input(format!("{field}: {}: {why}", path.display()));
    let mut pending = vec![path.to_owned()];
    let mut first = true;
    while let Some(path) = pending.pop() {
        // The root may be a symlink to the data; below it a symlink is content.
        let meta = if first { fs::metadata(&path) } else { fs::symlink_metadata(&path) };
        let meta = meta.map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => refuse(&path, "there is no such file or directory; give a path of this machine"),
            _ => refuse(&path, &format!("cannot be read: {e}; mend or remove it")),
        })?;
        let kind = meta.file_type();
        if kind.is_dir() {
            let unreadable = |e: io::Error| refuse(&path, &format!("cannot be listed: {e}; mend or remove it"));
            for entry in fs::read_dir(&path).map_err(unreadable)? {
                pending.push(entry.map_err(unreadable)?.path());
            }
        } else if kind.is_file() {
            readable(&path).map_err(|e| refuse(&path, &format!("cannot be read: {e}; mend or remove it")))?;
        } else if !kind.is_symlink() {
            let what = if kind.is_fifo() {
                "a FIFO"
            } else if kind.is_socket() {
                "a socket"
            } else {
                "a device"
            };
            return Err(refuse(&path, &format!("is {what}, which a dataset cannot hold; remove it")));
        }
        first = false;
    }
    Ok(())
}

/// Reads one byte: for root an unreadable file shows only then.
fn readable(path: &Path) -> io::Result<()> {
    let file = fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    file.read_at(&mut [0], 0).map(drop)
}

impl Origin {
    /// Makes the content be on this machine, below `place` where it is not there yet; says where.
    pub(crate) async fn settle(&self, name: &str, place: &Path) -> Result<PathBuf, Failure> {
        match self {
            Self::Path(path) => Ok(path.clone()),
            Self::Keys { files, secret } => {
                let directory = make(place, name, *secret)?;
                for (key, bytes) in files {
                    let path = directory.join(key);
                    fs::OpenOptions::new()
                        .write(true)
                        .create_new(true)
                        .mode(if *secret { 0o600 } else { 0o644 })
                        .open(&path)
                        .and_then(|mut f| f.write_all(bytes))
                        .or_failed("StateUnwritable", format!("write {}", path.display()))?;
                }
                Ok(directory)
            }
            Self::Url { url, file } => {
                let directory = make(place, name, false)?;
                download(url, &directory.join(file)).await.map_err(|e| match e {
                    Failure::Failed { reason, message } => {
                        Failure::failed(reason, format!("data {name}: {message}"))
                    }
                    other => other,
                })?;
                Ok(directory)
            }
        }
    }
}

fn make(place: &Path, name: &str, secret: bool) -> Result<PathBuf, Failure> {
    let directory = place.join(name);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(if secret { 0o700 } else { 0o755 })
        .create(&directory)
        .or_failed("StateUnwritable", format!("make {}", directory.display()))?;
    Ok(directory)
}

async fn download(url: &reqwest::Url, path: &Path) -> Result<(), Failure> {
    let failed = |e: &reqwest::Error| {
        // The URL may carry credentials; the error's own text repeats it.
        Failure::failed("SourceUnreadable", format!("cannot fetch {}: {}", shown(url), chain(&StripUrl(e))))
    };
    let response = reqwest::Client::builder()
        .connect_timeout(std::time::Duration::from_secs(10))
        .read_timeout(std::time::Duration::from_secs(60))
        .build()
        .map_err(|e| failed(&e))?
        .get(url.clone())
        .send()
        .await
        .and_then(reqwest::Response::error_for_status)
        .map_err(|e| failed(&e))?;
    let expected = response.content_length();
    let mut file = File::create_new(path).or_failed("StateUnwritable", format!("make {}", path.display()))?;
    let mut received = 0u64;
    let mut body = response.bytes_stream();
    while let Some(block) = body.next().await {
        let block = block.map_err(|e| failed(&e))?;
        received += block.len() as u64;
        file.write_all(&block).or_failed("DiskFull", format!("write {}", path.display()))?;
    }
    match expected {
        Some(expected) if expected != received => Err(Failure::failed(
            "SourceUnreadable",
            format!("{} ended after {received} of {expected} bytes", shown(url)),
        )),
        _ => Ok(()),
    }
}

/// A URL without user, password and query.
fn shown(url: &reqwest::Url) -> String {
    let mut url = url.clone();
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.to_string()
}

/// An error of the HTTP client without the URL in it.
#[derive(Debug)]
struct StripUrl<'a>(&'a reqwest::Error);

impl std::fmt::Display for StripUrl<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.status() {
            Some(status) => write!(f, "the server answered {status}"),
            None => f.write_str("the request failed"),
        }
    }
}

impl std::error::Error for StripUrl<'_> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn message(path: &Path) -> String {
        check("spec.data[0].source", path).unwrap_err().to_string()
    }

    #[test]
    fn what_cannot_be_staged_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::write(root.join("a"), "x").unwrap();
        std::os::unix::fs::symlink("nowhere", root.join("dangling")).unwrap();
        check("f", root).unwrap();
        assert!(message(&root.join("missing")).contains("missing"));
        let socket = UnixListener::bind(root.join("s")).unwrap();
        assert!(message(root).contains("/s: is a socket"), "{}", message(root));
        drop(socket);
        fs::remove_file(root.join("s")).unwrap();
        nix::unistd::mkfifo(&root.join("p"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert!(message(root).contains("/p: is a FIFO"));
    }

    #[test]
    fn a_file_that_fails_on_read_is_refused_for_root_too() {
        // The memory of this very process: it opens, and a read at address 0 fails.
        assert!(message(Path::new("/proc/self/mem")).contains("cannot be read"));
    }

    #[test]
    fn credentials_in_a_url_are_not_shown() {
        let url = reqwest::Url::parse("https://me:secret@example.org/f?token=1").unwrap();
        assert_eq!(shown(&url), "https://example.org/f");
    }
}
