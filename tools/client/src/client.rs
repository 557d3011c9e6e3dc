//! Values by READ where that can be had, by an ordinary `mg` else.
//!
//! ```text
//! get ── stag known? ── no ──────────────────────────────► mg, which brings the stag
//!              │ yes
//!            READ ── one version, this key ──► value       torn, mixed, another key's ──► mg
//!              ├──── there is none ──────────► miss        refused, silent ──► no more READs, mg
//!              └──── longer ── READ once more, as long as it says
//! ```
//!
//! In: keys. Out: values that were stored under them whole. Fails: the service's connection. A queue pair
//! that is over costs speed alone: [`Client::last_error`] says why, and [`Client::renew`] gives another. So does
//! one that could not be had from the beginning.

use crate::codec::Stag;
use crate::image::{HEAD_BYTES, READ_MAX_BYTES};
use crate::reader::{ReadError, Reader};
use crate::service::Service;
use crate::stags::{Next, Stags, Why};
use std::io;

/// Keys whose stags are kept: some 100 MB of them.
const STAGS_MAX: usize = 1 << 20;

/// A client over one connection and one queue pair.
#[derive(Debug)]
pub struct Client<S, R> {
    service: S,
    reader: Option<R>,
    /// What ended the last one.
    last_error: Option<ReadError>,
    stags: Stags,
    bytes: Vec<u8>,
    counts: Counts,
}

/// How values were got.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// READs.
    pub reads: u64,
    /// Of these, of several versions.
    pub torn: u64,
    /// Of these, of an item that had grown.
    pub longer: u64,
    /// Of these, of another key, or bytes of no server's.
    pub bad: u64,
    /// Gets that were asked over TCP.
    pub asked: u64,
}

/// A value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Got<'a> {
    /// Itself.
    pub value: &'a [u8],
    /// The client's flags.
    pub flags: u32,
}

/// What a READ led to.
enum Outcome {
    /// A value of so many bytes at the beginning of the buffer's rest, with these flags.
    Hit {
        at: usize,
        len: usize,
        flags: u32,
    },
    Miss,
    /// It is to be asked over TCP.
    Ask,
}

impl<S: Service, R: Reader> Client<S, R> {
    /// A client that knows no stag yet. Without a reader, all is asked over TCP.
    pub fn new(service: S, reader: Option<R>) -> Self {
        Self {
            service,
            reader,
            last_error: None,
            stags: Stags::new(STAGS_MAX),
            bytes: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// How values were got so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether there are READs. Without, all is asked over TCP.
    pub fn has_reader(&self) -> bool {
        self.reader.is_some()
    }

    /// What ended the last queue pair; `None` while it is as it was.
    pub fn last_error(&self) -> Option<&ReadError> {
        self.last_error.as_ref()
    }

    /// Gives the reader back, to be closed before the next one is opened: through kernel sockets there is one at
    /// a time.
    pub fn take_reader(&mut self) -> Option<R> {
        self.reader.take()
    }

    /// Another connection, and queue pair if one is to be had. Stags of a server that was started again are none:
    /// they are forgotten.
    pub fn renew(&mut self, service: S, reader: Option<R>) {
        (self.service, self.reader, self.last_error) = (service, reader, None);
        self.stags.clear();
    }

    /// Stores a value, and keeps its stag.
    ///
    /// # Errors
    /// The service's.
    pub fn set(&mut self, key: &[u8], flags: u32, value: &[u8]) -> io::Result<()> {
        let stag = self.service.set(key, flags, value)?;
        self.stags.keep(key, stag);
        Ok(())
    }

    /// Gets a value. `None`: there is none.
    ///
    /// # Errors
    /// The service's.
    pub fn get(&mut self, key: &[u8]) -> io::Result<Option<Got<'_>>> {
        let outcome = match self.stags.of(key) {
            Some(stag) => self.read(key, stag),
            None => Outcome::Ask,
        };
        match outcome {
            Outcome::Miss => Ok(None),
            Outcome::Ask => self.ask(key),
            Outcome::Hit { at, len, flags } => {
                let value = self.bytes.get(at..at + len).unwrap_or_default();
                Ok(Some(Got { value, flags }))
            }
        }
    }

    fn ask(&mut self, key: &[u8]) -> io::Result<Option<Got<'_>>> {
        self.counts.asked += 1;
        self.bytes.clear();
        let Some((flags, stag)) = self.service.get(key, &mut self.bytes)? else {
            return Ok(None);
        };
        self.stags.keep(key, stag);
        Ok(Some(Got { value: &self.bytes, flags }))
    }

    fn read(&mut self, key: &[u8], mut stag: Stag) -> Outcome {
        let Some(reader) = &mut self.reader else { return Outcome::Ask };
        // The second time with the length that the first one gave.
        for is_second in [false, true] {
            let len = (stag.len as usize).min(READ_MAX_BYTES);
            self.bytes.resize(len, 0);
            self.counts.reads += 1;
            if let Err(why) = reader.read(stag.id, &mut self.bytes) {
                (self.reader, self.last_error) = (None, Some(why));
                self.stags.clear();
                return Outcome::Ask;
            }
            match self.stags.judge(key, stag, is_second, &self.bytes) {
                Next::Hit(item) => {
                    let (at, len) = (HEAD_BYTES + key.len(), item.value.len());
                    return Outcome::Hit { at, len, flags: item.flags };
                }
                Next::Miss => return Outcome::Miss,
                Next::Again(longer) => {
                    self.counts.longer += 1;
                    stag = longer;
                }
                Next::Ask(why) => {
                    *match why {
                        Why::Torn => &mut self.counts.torn,
                        Why::Longer => &mut self.counts.longer,
                        Why::Bad => &mut self.counts.bad,
                    } += 1;
                    return Outcome::Ask;
                }
            }
        }
        Outcome::Ask
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::tests::{Sent, sent};
    use std::cell::RefCell;
    use std::collections::VecDeque;

    /// A value that the service has, and its stag.
    type Held = Option<(&'static [u8], Option<Stag>)>;

    /// Answers of a service and of a queue pair, in their order.
    #[derive(Debug, Default)]
    struct World {
        gets: RefCell<VecDeque<Held>>,
        reads: RefCell<VecDeque<Result<Vec<u8>, u8>>>,
        lens: RefCell<Vec<usize>>,
    }

    impl Service for &World {
        fn get(&mut self, _: &[u8], into: &mut Vec<u8>) -> io::Result<Option<(u32, Option<Stag>)>> {
            assert!(into.is_empty());
            let got = self.gets.borrow_mut().pop_front().expect("no get is due");
            Ok(got.map(|(value, stag)| {
                into.extend_from_slice(value);
                (3, stag)
            }))
        }

        fn set(&mut self, _: &[u8], _: u32, value: &[u8]) -> io::Result<Option<Stag>> {
            Ok(Some(stag(value.len())))
        }
    }

    impl Reader for &World {
        fn read(&mut self, id: u64, into: &mut [u8]) -> Result<(), ReadError> {
            assert_eq!(id, 77);
            self.lens.borrow_mut().push(into.len());
            let bytes = self.reads.borrow_mut().pop_front().expect("no READ is due");
            into.copy_from_slice(&bytes.map_err(ReadError::Refused)?);
            Ok(())
        }
    }

    fn stag(value_len: usize) -> Stag {
        Stag { id: 77, len: u32::try_from(43 + value_len).unwrap() }
    }

    fn value(text: &[u8], flags: u32) -> Option<Got<'_>> {
        Some(Got { value: text, flags })
    }

    fn world(
        gets: impl IntoIterator<Item = Held>,
        reads: impl IntoIterator<Item = Result<Vec<u8>, u8>>,
    ) -> World {
        let (gets, reads) = (gets.into_iter().collect(), reads.into_iter().collect());
        World { gets: RefCell::new(gets), reads: RefCell::new(reads), ..World::default() }
    }

    #[test]
    fn the_first_get_brings_the_stag_and_the_next_ones_read() {
        let w = world(
            [Some((&b"shine"[..], Some(stag(5)))), None],
            [
                Ok(sent(b"shine".to_vec(), 1).bytes(48)),
                Ok(sent(b"dusk".to_vec(), 2).bytes(48)),
                Ok(Sent { status: 1, key: vec![], value: vec![], version: 0 }.bytes(48)),
            ],
        );
        let mut client = Client::new(&w, Some(&w));
        assert_eq!(client.get(b"sun").unwrap(), value(b"shine", 3));
        assert_eq!(client.get(b"sun").unwrap(), value(b"shine", 7));
        assert_eq!(client.get(b"sun").unwrap(), value(b"dusk", 7));
        assert_eq!(client.get(b"sun").unwrap(), None);
        assert_eq!(client.get(b"other").unwrap(), None);
        assert_eq!(client.counts(), Counts { reads: 3, asked: 2, ..Counts::default() });
    }

    #[test]
    fn what_has_grown_is_read_once_more_and_no_third_time() {
        let long = |len| Sent { status: 2, ..sent(vec![1; len], 9) };
        let w = world(
            [Some((&b"third"[..], Some(stag(5))))],
            [
                Ok(long(100).bytes(44)),
                Ok(sent(vec![5; 100], 9).bytes(143)),
                Ok(long(200).bytes(143)),
                Ok(long(300).bytes(243)),
            ],
        );
        let mut client = Client::new(&w, Some(&w));
        client.set(b"sun", 0, b"x").unwrap();
        assert_eq!(client.get(b"sun").unwrap(), value(&[5; 100], 7));
        assert_eq!(client.get(b"sun").unwrap(), value(b"third", 3));
        assert_eq!(*w.lens.borrow(), [44, 143, 143, 243]);
        assert_eq!(client.counts(), Counts { reads: 4, longer: 3, asked: 1, ..Counts::default() });
    }

    #[test]
    fn what_fails_a_check_is_asked_for_and_what_ends_the_pair_ends_reads() {
        let torn = [&sent(vec![1; 5], 1).bytes(48)[..40], &sent(vec![2; 5], 2).bytes(48)[40..]];
        let mixed =
            [&sent(vec![1; 5], 1).bytes(48)[..37], &[9], &sent(vec![1; 5], 1).bytes(48)[38..]];
        let stranger = Sent { key: b"moo".to_vec(), ..sent(vec![1; 5], 4) };
        let huge = Sent { status: 2, ..sent(vec![1; 70_000], 4) };
        let good = Some((&b"shine"[..], Some(stag(5))));
        let w = world(
            [good; 5],
            [
                Ok(torn.concat()),
                Ok(mixed.concat()),
                Ok(stranger.bytes(48)),
                Ok(huge.bytes(48)),
                Err(0x62),
            ],
        );
        let mut client = Client::new(&w, Some(&w));
        client.set(b"sun", 0, b"shine").unwrap();
        for n in 0..5 {
            assert!(client.has_reader(), "{n}");
            assert_eq!(client.get(b"sun").unwrap(), value(b"shine", 3), "{n}");
        }
        assert_eq!(client.counts(), Counts { reads: 5, torn: 2, longer: 1, bad: 1, asked: 5 });
        assert!(!client.has_reader());
        assert!(matches!(client.last_error(), Some(ReadError::Refused(0x62))));
        w.gets.borrow_mut().push_back(good);
        assert_eq!(client.get(b"sun").unwrap(), value(b"shine", 3));
        assert_eq!(w.lens.borrow().len(), 5);
        // Another pair: what was known is forgotten.
        client.renew(&w, Some(&w));
        assert!(client.last_error().is_none());
        w.gets.borrow_mut().push_back(good);
        assert_eq!(client.get(b"sun").unwrap(), value(b"shine", 3));
        w.reads.borrow_mut().push_back(Ok(sent(b"shine".to_vec(), 1).bytes(48)));
        assert_eq!(client.get(b"sun").unwrap(), value(b"shine", 7));
    }

    #[test]
    fn without_a_reader_all_is_asked_for() {
        let good = Some((&b"shine"[..], Some(stag(5))));
        let w = world([good; 2], []);
        let mut client = Client::new(&w, None::<&World>);
        for _ in 0..2 {
            assert_eq!(client.get(b"sun").unwrap(), value(b"shine", 3));
        }
        client.renew(&w, Some(&w));
        assert!(client.take_reader().is_some() && !client.has_reader());
        w.gets.borrow_mut().push_back(good);
        assert_eq!(client.get(b"sun").unwrap(), value(b"shine", 3));
        assert_eq!((client.counts().asked, client.counts().reads), (3, 0));
    }
}
