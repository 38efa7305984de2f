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
use gridcast_core::broadcast::dataset::MAX_ENTRIES;

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
/// A file costs one open and a read of one byte; links are not followed, but for `path` itself, and nothing else is opened.
pub(crate) fn check(field: &str, path: &Path) -> Result<(), Failure> {
    // The root may be a symlink to the data; below it a symlink is content.
    let kind = fs::metadata(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => {
            refuse(field, path, "there is no such file or directory; give a path of this machine")
        }
        _ => unusable(field, path, "read", &e),
    })?;
    let mut directories = Vec::new();
    check_entry(field, path.to_owned(), kind.file_type(), &mut directories)?;
    let mut entries = 0u64;
    while let Some(directory) = directories.pop() {
        let unlisted = |e: io::Error| unusable(field, &directory, "listed", &e);
        for entry in fs::read_dir(&directory).map_err(unlisted)? {
            let entry = entry.map_err(unlisted)?;
            let path = entry.path();
            let kind = entry.file_type().map_err(|e| unusable(field, &path, "read", &e))?;
            check_entry(field, path, kind, &mut directories)?;
            entries += 1;
        }
        if entries > MAX_ENTRIES {
            let why = format!(
                "has more than {MAX_ENTRIES} files; pack small files into archives, or split the dataset"
            );
            return Err(refuse(field, path, &why));
        }
    }
    Ok(())
}

fn check_entry(
    field: &str,
    path: PathBuf,
    kind: fs::FileType,
    directories: &mut Vec<PathBuf>,
) -> Result<(), Failure> {
    if kind.is_dir() {
        directories.push(path);
    } else if kind.is_file() {
        readable(&path).map_err(|e| unusable(field, &path, "read", &e))?;
    } else if !kind.is_symlink() {
        let what = if kind.is_fifo() {
            "a FIFO"
        } else if kind.is_socket() {
            "a socket"
        } else {
            "a device"
        };
        return Err(refuse(field, &path, &format!("is {what}, which a dataset cannot hold; remove it")));
    }
    Ok(())
}

/// File names may hold line ends and control characters, which do not belong on a terminal.
fn refuse(field: &str, path: &Path, why: &str) -> Failure {
    let mut shown = String::new();
    for c in path.to_string_lossy().chars() {
        if c.is_control() { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    Failure::input(format!("{field}: {shown}: {why}"))
}

fn unusable(field: &str, path: &Path, what: &str, error: &io::Error) -> Failure {
    refuse(field, path, &format!("cannot be {what}: {error}; mend or remove it"))
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
                    other @ Failure::Input(_) => other,
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
        .read_timeout(std::time::Duration::from_mins(1))
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
pub(crate) fn shown(url: &reqwest::Url) -> String {
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
        fs::remove_file(root.join("p")).unwrap();
        std::os::unix::fs::symlink("..", root.join("loop")).unwrap();
        check("f", root).unwrap();
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
