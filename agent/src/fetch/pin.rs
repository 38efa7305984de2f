//! Is what the server sends now of the same version as what is here already?

use reqwest::StatusCode;
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};

/// The version that the first bytes are of, as far as the server tells.
#[derive(Debug, Default)]
pub(super) struct Pin {
    etag: Option<HeaderValue>,
    modified: Option<HeaderValue>,
    length: Option<u64>,
}

/// Where the bytes of a response belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// After those that are here.
    Here,
    /// At the start of the file.
    Start,
}

impl Pin {
    /// Length of the file, if the server told it.
    pub(super) fn length(&self) -> Option<u64> {
        self.length
    }

    /// For `If-Range`: the server sends the rest if this still is its version, else all of it. A weak ETag says only that
    /// two versions mean the same (RFC 9110 §13.1.5). Without either, a rest cannot be trusted to fit.
    pub(super) fn validator(&self) -> Option<HeaderValue> {
        let strong = self.etag.as_ref().filter(|tag| !tag.as_bytes().starts_with(b"W/"));
        strong.or(self.modified.as_ref()).cloned()
    }

    /// Where the body of this response belongs, with `received` bytes here already; or what has changed.
    pub(super) fn check(
        &mut self,
        status: StatusCode,
        headers: &HeaderMap,
        received: u64,
    ) -> Result<Position, String> {
        match status {
            StatusCode::RANGE_NOT_SATISFIABLE => {
                Err(format!("there is nothing after the first {received} bytes any more"))
            }
            StatusCode::PARTIAL_CONTENT => {
                let (start, total) =
                    content_range(headers).ok_or("the server does not say which part it sends".to_owned())?;
                if start != received {
                    return Err(format!("the server sends from byte {start} instead of {received}"));
                }
                self.compare(headers, total)?;
                Ok(Position::Here)
            }
            _ => {
                self.compare(headers, number(headers, header::CONTENT_LENGTH))?;
                Ok(Position::Start)
            }
        }
    }

    /// Keeps what is told for the first time, and finds what is told otherwise.
    fn compare(&mut self, headers: &HeaderMap, length: Option<u64>) -> Result<(), String> {
        let etag = headers.get(header::ETAG);
        let modified = headers.get(header::LAST_MODIFIED);
        match (&self.etag, etag) {
            (Some(before), Some(now)) if before != now => {
                return Err(format!("ETag {} became {}", text(before), text(now)));
            }
            // Equal tags decide: servers behind one address may date the same file differently.
            (Some(_), Some(_)) => {}
            _ => match (&self.modified, modified) {
                (Some(before), Some(now)) if before != now => {
                    return Err(format!("Last-Modified {} became {}", text(before), text(now)));
                }
                _ => {}
            },
        }
        match (self.length, length) {
            (Some(before), Some(now)) if before != now => {
                return Err(format!("{before} bytes became {now}"));
            }
            _ => {}
        }
        self.etag = self.etag.take().or_else(|| etag.cloned());
        self.modified = self.modified.take().or_else(|| modified.cloned());
        self.length = self.length.or(length);
        Ok(())
    }
}

fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

fn number(headers: &HeaderMap, name: HeaderName) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// First byte and the whole length of `bytes FIRST-LAST/LENGTH`.
fn content_range(headers: &HeaderMap) -> Option<(u64, Option<u64>)> {
    let text = headers.get(header::CONTENT_RANGE)?.to_str().ok()?;
    let (range, total) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, _) = range.split_once('-')?;
    let total = if total == "*" { None } else { Some(total.parse().ok()?) };
    Some((first.parse().ok()?, total))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines.iter().map(|(k, v)| (HeaderName::from_static(k), HeaderValue::from_static(v))).collect()
    }

    fn pinned(lines: &[(&'static str, &'static str)]) -> Pin {
        let mut pin = Pin::default();
        assert_eq!(pin.check(StatusCode::OK, &headers(lines), 0), Ok(Position::Start));
        pin
    }

    #[test]
    fn a_rest_of_the_same_version_fits() {
        let mut pin = pinned(&[("etag", "\"a\""), ("content-length", "100")]);
        assert_eq!(pin.validator().unwrap(), "\"a\"");
        let rest = headers(&[("etag", "\"a\""), ("content-range", "bytes 40-99/100")]);
        assert_eq!(pin.check(StatusCode::PARTIAL_CONTENT, &rest, 40), Ok(Position::Here));
        // The server knows no ranges, but it is the same file.
        let again = headers(&[("etag", "\"a\""), ("content-length", "100")]);
        assert_eq!(pin.check(StatusCode::OK, &again, 40), Ok(Position::Start));
    }

    #[test]
    fn another_version_is_noticed() {
        let first = [("etag", "\"a\""), ("last-modified", "Mon"), ("content-length", "100")];
        for (status, lines) in [
            (StatusCode::OK, [("etag", "\"b\""), ("content-length", "100")]),
            (StatusCode::OK, [("etag", "\"a\""), ("content-length", "101")]),
            (StatusCode::OK, [("last-modified", "Tue"), ("content-length", "100")]),
            (StatusCode::PARTIAL_CONTENT, [("etag", "\"a\""), ("content-range", "bytes 40-100/101")]),
            (StatusCode::PARTIAL_CONTENT, [("etag", "\"a\""), ("content-range", "bytes 41-99/100")]),
            (StatusCode::PARTIAL_CONTENT, [("etag", "\"a\""), ("content-range", "40")]),
            (StatusCode::RANGE_NOT_SATISFIABLE, [("etag", "\"a\""), ("content-range", "bytes */10")]),
        ] {
            assert!(pinned(&first).check(status, &headers(&lines), 40).is_err(), "{status} {lines:?}");
        }
    }

    #[test]
    fn a_weak_tag_does_not_join_two_answers() {
        assert_eq!(pinned(&[("etag", "W/\"a\"")]).validator(), None);
        assert_eq!(pinned(&[("etag", "W/\"a\""), ("last-modified", "Mon")]).validator().unwrap(), "Mon");
    }
}
