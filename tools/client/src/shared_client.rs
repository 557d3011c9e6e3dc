//! Values from the memory file where they lie where they did, by an ordinary `mg` else.
//!
//! ```text
//! get ── place known, asked for lately? ── no ──► mg, which brings the place
//!                       │ yes                            ▲
//!                   read there ── cannot be ─────────────┘
//!                       └──► value
//! ```
//!
//! In: keys. Out: values, each of which its key had during the call. Fails: the service's connection, which also ends the reads:
//! the server may be gone. [`SharedClient::renew`] begins anew.

use crate::client::Got;
use crate::codec::Place;
use crate::names::Names;
use crate::service::Service;
use crate::shared::{Shared, Why, now_ms};
use std::io::{self, ErrorKind};
use std::ops::Range;

/// Keys whose places are kept: some 150 MB of them.
const PLACES_MAX: usize = 1 << 20;

/// A key that is read is asked for once in so long: the server counts it as read then, and keeps it for that.
const ASKED_MS: u64 = 30_000;

/// A client over one connection, and the memory file of the server there.
#[derive(Debug)]
pub struct SharedClient<S> {
    service: S,
    shared: Option<Shared>,
    places: Names<Kept>,
    bytes: Vec<u8>,
    counts: Counts,
}

/// What is known of a key.
#[derive(Debug, Clone, Copy)]
struct Kept {
    place: Place,
    asked_ms: u64,
}

/// How values were got.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Gets that were answered from the memory file.
    pub reads: u64,
    /// Gets that were asked of the server.
    pub asked: u64,
    /// Of these, because the item was replaced or removed.
    pub gone: u64,
    /// Of these, because it was hidden while it was copied.
    pub changed: u64,
    /// Of these, because something was flushed.
    pub flushed: u64,
    /// Of these, because it had expired or was out of date.
    pub dead: u64,
    /// Of these, because the server has ended or was silent.
    pub ended: u64,
    /// Of these, because it was time to.
    pub due: u64,
}

impl<S: Service<Place>> SharedClient<S> {
    /// A client that knows no place yet. Without a file, all is asked.
    pub fn new(service: S, shared: Option<Shared>) -> Self {
        let (places, bytes) = (Names::new(PLACES_MAX), Vec::new());
        Self { service, shared, places, bytes, counts: Counts::default() }
    }

    /// How values were got so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether values are read in the memory file. Not any more after the connection failed.
    pub fn has_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Another connection, and file.
    pub fn renew(&mut self, service: S, shared: Option<Shared>) {
        (self.service, self.shared) = (service, shared);
        self.places.clear();
    }

    /// Stores a value, and keeps its place.
    ///
    /// # Errors
    /// The service's.
    pub fn set(&mut self, key: &[u8], flags: u32, value: &[u8]) -> io::Result<()> {
        let now = now_ms();
        let place = self.service.set(key, flags, value);
        let place = self.said(place, now)?;
        self.keep(key, place, now);
        Ok(())
    }

    /// Gets a value. `None`: there is none.
    ///
    /// # Errors
    /// The service's.
    pub fn get(&mut self, key: &[u8]) -> io::Result<Option<Got<'_>>> {
        let now = now_ms();
        match self.read(key, now) {
            Some((at, flags)) => {
                self.counts.reads += 1;
                let bytes = self.shared.as_ref().map(Shared::bytes).unwrap_or_default();
                Ok(Some(Got { value: bytes.get(at).unwrap_or_default(), flags }))
            }
            None => self.ask(key, now),
        }
    }

    fn read(&mut self, key: &[u8], now_ms: u64) -> Option<(Range<usize>, u32)> {
        let shared = self.shared.as_mut()?;
        let Kept { place, asked_ms } = self.places.of(key)?;
        if now_ms.saturating_sub(asked_ms) > ASKED_MS {
            self.counts.due += 1;
            return None;
        }
        let why = match shared.read(key, &place, now_ms) {
            Ok(found) => return Some(found),
            Err(why) => why,
        };
        *match why {
            Why::Gone => &mut self.counts.gone,
            Why::Changed => &mut self.counts.changed,
            Why::Flushed => &mut self.counts.flushed,
            Why::Expired | Why::Marked => &mut self.counts.dead,
            Why::Ended | Why::Silent => &mut self.counts.ended,
        } += 1;
        None
    }

    fn ask(&mut self, key: &[u8], now_ms: u64) -> io::Result<Option<Got<'_>>> {
        self.counts.asked += 1;
        self.bytes.clear();
        let got = self.service.get(key, &mut self.bytes);
        let got = self.said(got, now_ms)?;
        self.keep(key, got.and_then(|(_, place)| place), now_ms);
        Ok(got.map(|(flags, _)| Got { value: &self.bytes, flags }))
    }

    fn keep(&mut self, key: &[u8], place: Option<Place>, asked_ms: u64) {
        self.places.keep(key, place.map(|place| Kept { place, asked_ms }));
    }

    /// Takes note of whether the server is there, by what came of something sent at this time or later.
    fn said<T>(&mut self, said: io::Result<T>, now_ms: u64) -> io::Result<T> {
        match &said {
            Ok(_) => self.shared.iter_mut().for_each(|shared| shared.heard(now_ms)),
            // A refusal, or nothing was sent.
            Err(why) if matches!(why.kind(), ErrorKind::Other | ErrorKind::InvalidInput) => {}
            Err(_) => self.shared = None,
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::tests::Served;
    use std::collections::VecDeque;

    /// A service whose answers are these, in their order.
    #[derive(Debug, Default)]
    struct Answers(VecDeque<io::Result<Option<Place>>>);

    impl Service<Place> for Answers {
        fn get(
            &mut self,
            _: &[u8],
            into: &mut Vec<u8>,
        ) -> io::Result<Option<(u32, Option<Place>)>> {
            assert!(into.is_empty());
            let place = self.0.pop_front().expect("no get is due")?;
            into.extend_from_slice(b"asked");
            Ok(Some((3, place)))
        }

        fn set(&mut self, _: &[u8], _: u32, _: &[u8]) -> io::Result<Option<Place>> {
            self.0.pop_front().expect("no set is due")
        }
    }

    fn got(client: &mut SharedClient<Answers>) -> Vec<u8> {
        client.get(b"sun").unwrap().unwrap().value.to_vec()
    }

    #[test]
    fn a_value_is_read_until_it_is_gone_or_due() {
        let served = Served::new();
        let place = served.item(0, b"sun", b"shine");
        let answers = Answers([Ok(Some(place)), Ok(Some(place)), Ok(None), Ok(None)].into());
        let mut client = SharedClient::new(answers, Some(served.open()));
        assert_eq!([(); 3].map(|()| got(&mut client)), [&b"asked"[..], b"shine", b"shine"]);
        // It was asked for long ago.
        client.places.keep(b"sun", Some(Kept { place, asked_ms: now_ms().saturating_sub(30_100) }));
        assert_eq!([(); 2].map(|()| got(&mut client)), [&b"asked"[..], b"shine"]);
        served.put(place.offset, &[3]);
        // No other place is known then.
        assert_eq!([(); 2].map(|()| got(&mut client)), [b"asked"; 2]);
        let counts = Counts { reads: 3, asked: 4, gone: 1, due: 1, ..Counts::default() };
        assert_eq!(client.counts(), counts);
    }

    #[test]
    fn a_refusal_ends_nothing_and_a_failure_the_reads() {
        let served = Served::new();
        let place = served.item(0, b"sun", b"shine");
        let refused = || Err(io::Error::other("SERVER_ERROR busy"));
        let answers =
            Answers([Ok(Some(place)), refused(), Err(ErrorKind::UnexpectedEof.into())].into());
        let mut client = SharedClient::new(answers, Some(served.open()));
        client.set(b"sun", 0, b"shine").unwrap();
        assert!(client.get(b"moon").is_err());
        assert_eq!(got(&mut client), b"shine");
        assert!(client.get(b"moon").is_err() && !client.has_shared());
        client.renew(Answers([Ok(Some(place))].into()), Some(served.open()));
        assert_eq!([(); 2].map(|()| got(&mut client)), [&b"asked"[..], b"shine"]);
    }
}
