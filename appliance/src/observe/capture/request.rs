//! What is to be captured, and how it is requested: by the query of `GET /capture?…`.
//!
//! In and out: a [`Request`] and its query, `what=drops&key=user%3A%2A&count=5`. Values are
//! percent-encoded. Fails with a [`RequestError`] that says what is wrong with a query.

use dataplane::capture::{Filter, KeyPattern, What};
use dataplane::observe::encoded;
use driver_shim::SLOT_BYTES;
use std::fmt::Write;
use std::num::{NonZeroU32, NonZeroU64};
use wire::DropReason;

/// What is to be captured, and how much of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Which frames.
    pub filter: Filter,
    /// Ends after so many frames.
    pub count: Option<NonZeroU64>,
    /// Ends after so many seconds.
    pub seconds: Option<NonZeroU32>,
}

/// What is wrong with a query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// An unknown word.
    #[error("`{0}` is not an option of a capture")]
    Unknown(String),
    /// A value that does not fit.
    #[error("`{value}` is no value of {name}")]
    Value {
        /// Of what.
        name: &'static str,
        /// As it was given.
        value: String,
    },
}

impl Default for Request {
    fn default() -> Self {
        let filter =
            Filter { what: What::Traffic, source: None, key: None, snap_bytes: SLOT_BYTES };
        Self { filter, count: None, seconds: None }
    }
}

impl Request {
    /// Reads a query.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn from_query(query: &str) -> Result<Self, RequestError> {
        let mut request = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            request.set(name, value)?;
        }
        Ok(request)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), RequestError> {
        let bytes = decoded(value);
        let text = String::from_utf8_lossy(&bytes);
        let bad = |name| RequestError::Value { name, value: text.clone().into_owned() };
        match name {
            "what" => {
                self.filter.what = match &*text {
                    "traffic" => What::Traffic,
                    "replies" => What::Replies,
                    "drops" => What::Drops(None),
                    _ => return Err(bad("what")),
                }
            }
            "reason" => {
                self.filter.what =
                    What::Drops(Some(DropReason::named(&text).ok_or_else(|| bad("reason"))?));
            }
            "source" => self.filter.source = Some(text.parse().map_err(|_| bad("source"))?),
            "key" => self.filter.key = Some(KeyPattern::new(&bytes).map_err(|_| bad("key"))?),
            "snaplen" => {
                let bytes = text.parse().ok().filter(|n| (1..=SLOT_BYTES).contains(n));
                self.filter.snap_bytes = bytes.ok_or_else(|| bad("snaplen"))?;
            }
            "count" => self.count = Some(text.parse().map_err(|_| bad("count"))?),
            "seconds" => self.seconds = Some(text.parse().map_err(|_| bad("seconds"))?),
            _ => return Err(RequestError::Unknown(name.to_owned())),
        }
        Ok(())
    }

    /// The query that requests it.
    pub fn query(&self) -> String {
        let filter = &self.filter;
        let mut query = format!("snaplen={}", filter.snap_bytes);
        let mut put = |name: &str, value: &[u8]| {
            let _ = write!(query, "&{name}={}", encoded(value));
        };
        match filter.what {
            What::Traffic => put("what", b"traffic"),
            What::Replies => put("what", b"replies"),
            What::Drops(None) => put("what", b"drops"),
            What::Drops(Some(reason)) => put("reason", reason.name().as_bytes()),
        }
        if let Some(source) = filter.source {
            put("source", source.to_string().as_bytes());
        }
        if let Some(key) = &filter.key {
            put("key", key.as_bytes());
        }
        if let Some(count) = self.count {
            put("count", count.to_string().as_bytes());
        }
        if let Some(seconds) = self.seconds {
            put("seconds", seconds.to_string().as_bytes());
        }
        query
    }
}

/// The bytes that a value stands for. A percent sign without two digits stands for itself.
fn decoded(value: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), value.as_bytes());
    while let [first, behind @ ..] = rest {
        let digits = behind.get(..2).filter(|_| *first == b'%').and_then(|digits| {
            let text = std::str::from_utf8(digits).ok()?;
            text.bytes()
                .all(|b| b.is_ascii_hexdigit())
                .then(|| u8::from_str_radix(text, 16).ok())?
        });
        bytes.push(digits.unwrap_or(*first));
        rest = if digits.is_some() { behind.get(2..).unwrap_or_default() } else { behind };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_what_its_query_says() {
        let all = Request::default();
        for request in [
            all.clone(),
            Request {
                filter: Filter {
                    what: What::Drops(Some(DropReason::UdpChecksum)),
                    source: Some("fd00::/8".parse().unwrap()),
                    key: Some(KeyPattern::new(b"a*?%&= \xff\0").unwrap()),
                    snap_bytes: 96,
                },
                count: NonZeroU64::new(u64::MAX),
                seconds: NonZeroU32::new(1),
            },
            Request { filter: Filter { what: What::Replies, ..all.filter.clone() }, ..all.clone() },
            Request {
                filter: Filter { what: What::Drops(None), ..all.filter.clone() },
                ..all.clone()
            },
        ] {
            assert_eq!(Request::from_query(&request.query()), Ok(request));
        }
        assert_eq!(Request::from_query("").unwrap(), all);
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (query, said) in [
            ("what=all", "`all` is no value of what"),
            ("reason=none", "`none` is no value of reason"),
            ("source=10.0.0.1/8", "`10.0.0.1/8` is no value of source"),
            ("key=", "`` is no value of key"),
            ("snaplen=0", "`0` is no value of snaplen"),
            ("snaplen=2049", "`2049` is no value of snaplen"),
            ("count=0", "`0` is no value of count"),
            ("seconds=-1", "`-1` is no value of seconds"),
            ("seconds=4294967296", "`4294967296` is no value of seconds"),
            ("port=1", "`port` is not an option of a capture"),
        ] {
            assert_eq!(Request::from_query(query).unwrap_err().to_string(), said);
        }
        assert_eq!(decoded("%4%zz%41%"), b"%4%zzA%");
    }
}
