//! How is the server spoken to, and what is told of that?

use std::error::Error;
use std::ffi::OsStr;
use std::fmt;
use std::time::Duration;

use gridcast_core::failure::chain;
use reqwest::header::{self, HeaderMap, HeaderValue};
use reqwest::redirect::{Action, Attempt, Policy};
use reqwest::{Certificate, Client, ClientBuilder, Url};
use webpki_root_certs::TLS_SERVER_ROOT_CERTS;

use super::FetchError;

const MAX_REDIRECTS: usize = 10;
const CONNECT: Duration = Duration::from_secs(10);

/// A server that sends nothing for so long has hung.
const SILENCE: Duration = Duration::from_mins(1);

/// An http or https URL with a host.
pub(super) fn parse(text: &str) -> Result<Url, FetchError> {
    let url = Url::parse(text).map_err(|error| FetchError::Url(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(FetchError::Url(format!("{} is neither http nor https", url.scheme())));
    }
    Ok(url)
}

/// A client that sends `authorization`, if any, as the header of that name; never to another host than the first.
pub(super) fn build(authorization: Option<&OsStr>) -> Result<Client, FetchError> {
    let mut headers = HeaderMap::new();
    // What is staged is what the server has, not what a proxy makes of it.
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if let Some(value) = authorization.filter(|value| !value.is_empty()) {
        // A Secret that was made with `echo` ends with a line end.
        let value = value.to_str().map(str::trim_end).ok_or(FetchError::Authorization)?;
        let mut value = HeaderValue::from_str(value).map_err(|_| FetchError::Authorization)?;
        value.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, value);
    }
    let builder = || {
        Client::builder()
            .default_headers(headers.clone())
            .user_agent(concat!("gridcast/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            .redirect(Policy::custom(redirect))
    };
    with_roots(builder).map_err(|error| FetchError::Client(chain(&error)))
}

/// The authorities of SSL_CERT_FILE and SSL_CERT_DIR, or of the system; an image with nothing in it has none.
fn with_roots(builder: impl Fn() -> ClientBuilder) -> Result<Client, reqwest::Error> {
    let own = ["SSL_CERT_FILE", "SSL_CERT_DIR"].iter().any(|name| std::env::var_os(name).is_some());
    match builder().build() {
        // Who names authorities means those, not others beside them.
        Err(error) if own => Err(error),
        Err(_) => {
            let bundled: Result<Vec<Certificate>, _> =
                TLS_SERVER_ROOT_CERTS.iter().map(|der| Certificate::from_der(der)).collect();
            builder().tls_certs_only(bundled?).build()
        }
        built => built,
    }
}

/// reqwest leaves out the header for another host, port or scheme by itself.
fn redirect(attempt: Attempt<'_>) -> Action {
    let before = attempt.previous();
    if before.len() > MAX_REDIRECTS {
        return attempt.error(format!("more than {MAX_REDIRECTS} redirects"));
    }
    // Who asked for https wants to know whose data it is.
    if before.last().is_some_and(|last| last.scheme() == "https") && attempt.url().scheme() != "https" {
        return attempt.error("it is redirected from https to http; give the http URL if that is meant");
    }
    attempt.follow()
}

/// Why the server's certificate was refused, if that is what stopped the request: trying again does not help then.
pub(super) fn distrust(error: &reqwest::Error) -> Option<String> {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(rustls::Error::InvalidCertificate(why)) = error.downcast_ref() {
            return Some(why.to_string());
        }
        // An io::Error hides what it wraps from the chain of causes.
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        cause = match wrapped {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

/// How long the server wants to be left alone. It may also say a date; then the usual pauses do.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}

/// A URL without user, password, query and fragment.
pub(super) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}

/// An error of the HTTP client without the URL that its own text repeats.
#[derive(Debug)]
pub(super) struct Anonymous<'a>(pub(super) &'a reqwest::Error);

impl fmt::Display for Anonymous<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_redirect() {
            "a redirect was not followed"
        } else if self.0.is_timeout() {
            "the server is silent"
        } else if self.0.is_connect() {
            "no connection"
        } else {
            "the transfer broke"
        })
    }
}

impl Error for Anonymous<'_> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let cause = self.0.source()?;
        // Of a connection the client says the same again before it comes to the point.
        if self.0.is_connect() { cause.source().or(Some(cause)) } else { Some(cause) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_secret_is_not_shown() {
        let url = parse("https://me:secret@example.org/f?token=1#x").unwrap();
        assert_eq!(shown(&url), "https://example.org/f");
        let refused = parse("ftp://me:secret@example.org/f").unwrap_err().to_string();
        assert!(!refused.contains("secret"), "{refused}");
        let refused = build(Some(OsStr::new("Bearer se\ncret"))).unwrap_err().to_string();
        assert!(refused.contains("GRIDCAST_AUTHORIZATION") && !refused.contains("cret\n"), "{refused}");
    }

    #[test]
    fn patience_is_a_number_of_seconds() {
        let said = |value: &'static str| {
            retry_after(&HeaderMap::from_iter([(header::RETRY_AFTER, HeaderValue::from_static(value))]))
        };
        assert_eq!(said("7"), Some(Duration::from_secs(7)));
        assert_eq!(said("Fri, 31 Dec 1999 23:59:59 GMT"), None);
    }
}
