//! `gridcast-agent fetch` as an init container runs it, against servers that answer as they are told.

// Tests stop at what they do not expect; clippy knows that of functions marked as tests only.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod server;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use server::{Server, reply};

const LENGTH: usize = 300_000;

fn content() -> Vec<u8> {
    (0..LENGTH).map(|n| (n % 251) as u8).collect()
}

struct Pod {
    directory: TempDir,
}

impl Pod {
    fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("gc-fetch-").tempdir().unwrap();
        fs::write(directory.path().join("last-words"), "").unwrap();
        Self { directory }
    }

    fn origin(&self) -> PathBuf {
        self.directory.path().join("origin")
    }

    fn command(&self, url: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gridcast-agent"));
        command
            .args(["fetch", "--url", url, "--directory"])
            .arg(self.origin())
            .arg("--termination-log")
            .arg(self.directory.path().join("last-words"))
            .env_remove("GRIDCAST_AUTHORIZATION")
            .env("NO_PROXY", "*")
            .stdin(Stdio::null());
        command
    }

    fn fetch(&self, url: &str) -> Output {
        self.command(url).output().unwrap()
    }

    /// Names of what is there.
    fn files(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.origin()) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn last_words(&self) -> String {
        fs::read_to_string(self.directory.path().join("last-words")).unwrap()
    }

    /// It failed, said why in its last words and on standard error, and left nothing.
    fn failed(&self, output: &Output, code: i32, parts: &[&str]) {
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        for part in parts {
            assert!(self.last_words().contains(part), "{part} is not in {}", self.last_words());
        }
        assert!(said.trim_end().ends_with(&self.last_words()), "{said}");
        assert_eq!(self.files(), Vec::<String>::new());
    }
}

fn succeeded(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Cuts the body of a reply after so many bytes.
fn cut(mut reply: Vec<u8>, kept: usize) -> Vec<u8> {
    let head = reply.windows(4).position(|part| part == b"\r\n\r\n").unwrap() + 4;
    reply.truncate(head + kept);
    reply
}

#[test]
fn a_file_comes_whole_and_alone() {
    let server = Server::start(|_, _| reply(200, &[("ETag", "\"a\"")], &content()));
    let pod = Pod::new();
    // A container that was restarted finds what the first has left.
    fs::create_dir(pod.origin()).unwrap();
    fs::write(pod.origin().join(".gridcast-fetch.part"), vec![1; LENGTH * 2]).unwrap();
    fs::write(pod.origin().join("ics.tar"), "old").unwrap();
    let url = server.url("/data/ics.tar?token=secret");
    let output = pod.command(&url).env("GRIDCAST_AUTHORIZATION", "Bearer abc\n").output().unwrap();
    succeeded(&output);
    assert_eq!(pod.files(), ["ics.tar"]);
    assert_eq!(fs::read(pod.origin().join("ics.tar")).unwrap(), content());
    let request = &server.requests()[0];
    assert!(request.starts_with("get /data/ics.tar?token=secret "), "{request}");
    assert!(request.contains("authorization: bearer abc\r\n"), "{request}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("300000 bytes") && !said.contains("secret") && !said.contains("abc"), "{said}");

    succeeded(&pod.command(&url).args(["--name", "other"]).output().unwrap());
    assert!(pod.origin().join("other").exists());
}

#[test]
fn a_transfer_that_breaks_is_continued() {
    let server = Server::start(|number, _| match number {
        0 => cut(reply(200, &[("ETag", "\"a\"")], &content()), 100_000),
        1 => reply(503, &[("Retry-After", "1")], b"busy"),
        _ => {
            let range = [("ETag", "\"a\""), ("Content-Range", "bytes 100000-299999/300000")];
            reply(206, &range, &content()[100_000..])
        }
    });
    let pod = Pod::new();
    succeeded(&pod.fetch(&server.url("/f")));
    assert_eq!(fs::read(pod.origin().join("f")).unwrap(), content());
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    for request in &requests[1..] {
        assert!(request.contains("range: bytes=100000-\r\n"), "{request}");
        assert!(request.contains("if-range: \"a\"\r\n"), "{request}");
    }
}

#[test]
fn a_server_without_ranges_starts_over() {
    let server = Server::start(|number, _| {
        let whole = reply(200, &[("ETag", "\"a\"")], &content());
        if number == 0 { cut(whole, 200_000) } else { whole }
    });
    let pod = Pod::new();
    succeeded(&pod.fetch(&server.url("/f")));
    assert_eq!(fs::read(pod.origin().join("f")).unwrap(), content());
}

#[test]
fn a_file_that_changes_meanwhile_is_an_error() {
    let server = Server::start(|number, _| {
        if number == 0 {
            cut(reply(200, &[("ETag", "\"a\"")], &content()), 1000)
        } else {
            reply(200, &[("ETag", "\"b\"")], &content())
        }
    });
    let pod = Pod::new();
    let output = pod.fetch(&server.url("/f"));
    pod.failed(&output, 1, &["/f changed while it was read", "ETag \"a\" became \"b\""]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("SourceChanged"));
}

#[test]
fn a_status_is_named_and_not_asked_for_twice() {
    let server =
        Server::start(
            |_, request| {
                if request.contains("/missing") { reply(404, &[], b"") } else { reply(403, &[], b"") }
            },
        );
    let pod = Pod::new();
    let output = pod.fetch(&server.url("/missing?token=secret"));
    pod.failed(&output, 1, &["/missing: the server answered 404 Not Found; look at the URL"]);
    let output = pod.fetch(&server.url("/f"));
    pod.failed(&output, 1, &["403 Forbidden", "`authorization`"]);
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn redirects_are_followed_to_an_end_and_credentials_stay() {
    let goal = Server::start(|_, _| reply(200, &[], &content()));
    let url = goal.url("/real");
    let first = Server::start(move |_, request| {
        if request.contains("/round") {
            reply(302, &[("Location", "/round")], b"")
        } else {
            reply(302, &[("Location", &url)], b"")
        }
    });
    let pod = Pod::new();
    let mut command = pod.command(&first.url("/f"));
    succeeded(&command.env("GRIDCAST_AUTHORIZATION", "Bearer abc").output().unwrap());
    // The name is what was asked for, not where it was in the end.
    assert_eq!(pod.files(), ["f"]);
    assert!(first.requests()[0].contains("bearer abc"));
    assert!(!goal.requests()[0].contains("abc"), "{}", goal.requests()[0]);

    let pod = Pod::new();
    let output = pod.fetch(&first.url("/round"));
    pod.failed(&output, 1, &["more than 10 redirects"]);
    assert_eq!(first.requests().len(), 1 + 11);
}

#[test]
fn what_cannot_be_asked_for_ends_with_two() {
    let pod = Pod::new();
    for (url, told) in
        [("ftp://h/f", "ftp is neither http nor https"), ("nonsense", "--url"), ("http://h/", "give --name")]
    {
        pod.failed(&pod.fetch(url), 2, &[told]);
    }
    let output = pod.command("http://h/f").env("GRIDCAST_AUTHORIZATION", "a\nsecret").output().unwrap();
    pod.failed(&output, 2, &["GRIDCAST_AUTHORIZATION"]);
    assert!(!pod.last_words().contains("secret"));
    let output = Command::new(env!("CARGO_BIN_EXE_gridcast-agent")).arg("fetch").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    // Where kubelet has made no file there is none.
    let elsewhere = pod.directory.path().join("none");
    pod.command("nonsense").arg("--termination-log").arg(&elsewhere).output().unwrap();
    assert!(!elsewhere.exists());
}

#[test]
fn only_a_trusted_server_is_read() {
    let (server, authority) = Server::start_tls(|_, _| reply(200, &[], &content()));
    let pod = Pod::new();
    let began = Instant::now();
    let output = pod.command(&server.url("/f")).env_remove("SSL_CERT_FILE").output().unwrap();
    pod.failed(&output, 1, &["its certificate is not trusted", "SSL_CERT_FILE"]);
    assert!(began.elapsed() < Duration::from_secs(20), "it was tried again");
    let file = pod.directory.path().join("ca.pem");
    fs::write(&file, authority).unwrap();
    succeeded(&pod.command(&server.url("/f")).env("SSL_CERT_FILE", &file).output().unwrap());
    assert_eq!(fs::read(pod.origin().join("f")).unwrap(), content());
    // An image with nothing in it: the authorities that are built in are asked, and do not know this one.
    let pod = Pod::new();
    let mut bare = Command::new("unshare");
    let hide =
        "mount -t tmpfs none /etc/ssl; mount -t tmpfs none /usr/share/ca-certificates || true; exec \"$@\"";
    let inner = pod.command(&server.url("/f"));
    bare.args(["--mount", "sh", "-c", hide, "sh"]).arg(inner.get_program()).args(inner.get_args());
    let output =
        bare.env_remove("SSL_CERT_FILE").env_remove("SSL_CERT_DIR").env("NO_PROXY", "*").output().unwrap();
    pod.failed(&output, 1, &["its certificate is not trusted"]);
}

#[test]
fn a_signal_ends_it_and_leaves_nothing() {
    let server = Server::start(|_, _| {
        std::thread::sleep(Duration::from_secs(3));
        reply(200, &[], b"")
    });
    let pod = Pod::new();
    let child = pod.command(&server.url("/f")).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    while server.requests().is_empty() {
        assert!(began.elapsed() < Duration::from_mins(1));
        std::thread::sleep(Duration::from_millis(10));
    }
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
    let output = child.wait_with_output().unwrap();
    pod.failed(&output, 1, &["stopped by a signal"]);
}
