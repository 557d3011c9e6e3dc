//! One-sided reads as a link: gets travel as READs, the rest over TCP.
//!
//! A key's first get is an `mg` over TCP, which brings its stag; from then on it is read, and a READ that
//! fails a check is asked over TCP again, as every client must (docs/rdma.md). What has come back is handed over
//! as the text that a server would have answered, so that it is checked to the byte like any reply. A queue pair
//! that is over is opened again; what was under way on it is lost. Each request over TCP is waited for, with all queue
//! pairs: beside many sets, latencies of READs are those waits. Captures in other protocols than the classic
//! text are not carried.

use super::link::{Link, Taken};
use super::pending::Tag;
use crate::trace::Request;
use gnomon_client::codec::connection::Connection;
use gnomon_client::codec::reply::{append_value, parse};
use gnomon_client::codec::{Asked, Protocol, Stag, udp};
use gnomon_client::frames::{FRAME_MAX_BYTES, Frames, near_end, sending};
use gnomon_client::image::READ_MAX_BYTES;
use gnomon_client::requester::{Done, Due, Requester, TIMEOUT};
use gnomon_client::service::{self, Service};
use gnomon_client::stags::{Next, Stags, Why};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use wire::roce::request::Response;

/// READs that a queue pair has under way, as most NICs have.
const DEPTH: usize = 16;
/// Frames taken at a time.
const TURN: usize = 256;

/// How gets were answered.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadCounts {
    /// READs that were answered whole.
    pub reads: u64,
    /// Of these, bytes of several versions.
    pub torn: u64,
    /// Of these, of an item that had grown.
    pub longer: u64,
    /// Of these, of another key, or bytes of no server's.
    pub bad: u64,
    /// Keys that were asked over TCP: first gets, and after a failed check.
    pub asked: u64,
    /// Times that a queue pair requested again what it missed.
    pub resumed: u64,
    /// Queue pairs that were over, and opened again.
    pub reopened: u64,
}

/// A queue pair, and the connection that it lives with.
#[derive(Debug)]
struct Lane {
    service: Connection,
    requester: Requester,
}

/// A get, until all its keys have come.
#[derive(Debug)]
struct Get {
    tag: Tag,
    left: usize,
    /// The reply.
    text: Vec<u8>,
}

/// A READ under way.
#[derive(Debug)]
struct Under {
    lane: usize,
    get: usize,
    key: Vec<u8>,
    stag: Stag,
    /// It is the second for this key, with the length that the first one gave.
    is_second: bool,
}

/// A table of things that come and go, with numbers that are used again.
#[derive(Debug)]
struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Slab<T> {
    fn add(&mut self, it: T) -> usize {
        let at = self.free.pop().unwrap_or(self.slots.len());
        match self.slots.get_mut(at) {
            Some(slot) => *slot = Some(it),
            None => self.slots.push(Some(it)),
        }
        at
    }

    fn take(&mut self, at: usize) -> Option<T> {
        let it = self.slots.get_mut(at)?.take()?;
        self.free.push(at);
        Some(it)
    }

    fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.slots.get_mut(at)?.as_mut()
    }
}

/// Queue pairs to one server.
#[derive(Debug)]
pub struct Reads<F> {
    frames: F,
    server: SocketAddr,
    lanes: Vec<Lane>,
    stags: Stags,
    clients: HashMap<SocketAddr, u32>,
    gets: Slab<Get>,
    under: Slab<Under>,
    /// Buffers of READs that are done.
    buffers: Vec<Vec<u8>>,
    finished: VecDeque<(Tag, Vec<u8>)>,
    counts: ReadCounts,
}

impl<F: Frames> Reads<F> {
    /// Opens `count` queue pairs, at least one, to the service at `server`.
    ///
    /// # Errors
    /// The connections', and the service's refusal.
    pub fn connect(server: SocketAddr, count: usize, frames: F) -> io::Result<Self> {
        let mut lanes = Vec::new();
        for _ in 0..count.max(1) {
            lanes.push(lane(server, &frames, &lanes)?);
        }
        Ok(Self {
            frames,
            server,
            lanes,
            // As many as the replay has keys.
            stags: Stags::new(usize::MAX),
            clients: HashMap::new(),
            gets: Slab { slots: Vec::new(), free: Vec::new() },
            under: Slab { slots: Vec::new(), free: Vec::new() },
            buffers: Vec::new(),
            finished: VecDeque::new(),
            counts: ReadCounts::default(),
        })
    }

    /// How gets were answered so far.
    pub fn counts(&self) -> ReadCounts {
        let resumed = self.lanes.iter().map(|lane| lane.requester.resumed()).sum::<u64>();
        ReadCounts { resumed: self.counts.resumed + resumed, ..self.counts }
    }

    /// Reads a key of a get, or asks for it.
    fn fetch(&mut self, lane: usize, get: usize, key: &[u8]) -> io::Result<()> {
        match self.stags.of(key) {
            Some(stag) => self.read(Under { lane, get, key: key.to_vec(), stag, is_second: false }),
            None => self.ask(lane, get, key),
        }
    }

    fn read(&mut self, under: Under) -> io::Result<()> {
        let Stag { id, len } = under.stag;
        let mut buffer = self.buffers.pop().unwrap_or_default();
        buffer.resize((len as usize).min(READ_MAX_BYTES), 0);
        let at = under.lane;
        let ticket = self.under.add(under);
        let Self { lanes, frames, .. } = self;
        let Some(lane) = lanes.get_mut(at) else { return Ok(()) };
        let mut sent = Ok(());
        lane.requester.post(id, ticket as u64, buffer, &mut sending(frames, &mut sent));
        sent
    }

    /// Asks for a key over TCP, which brings its stag.
    fn ask(&mut self, lane: usize, get: usize, key: &[u8]) -> io::Result<()> {
        self.counts.asked += 1;
        let mut value = Vec::new();
        let Some(lane) = self.lanes.get_mut(lane) else { return Ok(()) };
        let got = lane.service.get(key, &mut value)?;
        self.stags.keep(key, got.and_then(|(_, stag)| stag));
        self.found(get, got.map(|(flags, _)| (key, flags, &value[..])));
        Ok(())
    }

    /// One key of a get has been answered.
    fn found(&mut self, at: usize, value: Option<(&[u8], u32, &[u8])>) {
        let Some(get) = self.gets.get_mut(at) else { return };
        if let Some((key, flags, value)) = value {
            append_value(&key, flags, &value, &mut get.text);
        }
        get.left = get.left.saturating_sub(1);
        if get.left == 0
            && let Some(Get { tag, mut text, .. }) = self.gets.take(at)
        {
            text.extend_from_slice(b"END\r\n");
            self.finished.push_back((tag, text));
        }
    }

    /// Looks at what a READ got.
    fn done(&mut self, Done { ticket, bytes }: Done) -> io::Result<()> {
        let under = usize::try_from(ticket).ok().and_then(|ticket| self.under.take(ticket));
        let Some(under) = under else { return Ok(()) };
        let Under { lane, get, stag, .. } = under;
        self.counts.reads += 1;
        match self.stags.judge(&under.key, stag, under.is_second, &bytes) {
            Next::Hit(item) => self.found(get, Some((&under.key, item.flags, item.value))),
            Next::Miss => self.found(get, None),
            Next::Again(stag) => {
                self.counts.longer += 1;
                self.read(Under { stag, is_second: true, ..under })?;
            }
            Next::Ask(why) => {
                *match why {
                    Why::Torn => &mut self.counts.torn,
                    Why::Longer => &mut self.counts.longer,
                    Why::Bad => &mut self.counts.bad,
                } += 1;
                self.ask(lane, get, &under.key)?;
            }
        }
        self.buffers.push(bytes);
        Ok(())
    }

    /// Opens a queue pair again. Stags of a server that was started again are none.
    fn reopen(&mut self, at: usize) -> io::Result<()> {
        self.counts.reopened += 1;
        self.stags.clear();
        for n in 0..self.under.slots.len() {
            if self.under.get_mut(n).is_some_and(|under| under.lane == at)
                && let Some(under) = self.under.take(n)
            {
                self.gets.take(under.get);
            }
        }
        let opened = lane(self.server, &self.frames, &self.lanes)?;
        if let Some(lane) = self.lanes.get_mut(at) {
            self.counts.resumed += lane.requester.resumed();
            *lane = opened;
        }
        Ok(())
    }

    /// Takes one frame that has come. `false`: there is none.
    fn take(&mut self) -> io::Result<bool> {
        let mut frame = [0; FRAME_MAX_BYTES];
        let len = self.frames.receive(&mut frame)?;
        let Some(response) = Response::checked(frame.get(..len).unwrap_or_default()) else {
            return Ok(len > 0);
        };
        let Self { lanes, frames, .. } = self;
        let whose = lanes.iter_mut().enumerate().find(|(_, lane)| lane.requester.is_for(&response));
        let Some((at, lane)) = whose else { return Ok(true) };
        let mut sent = Ok(());
        let taken = lane.requester.take(&response, &mut sending(frames, &mut sent));
        sent?;
        match taken {
            Ok(Some(done)) => self.done(done)?,
            Ok(None) => {}
            Err(_) => self.reopen(at)?,
        }
        Ok(true)
    }

    /// Requests again what has not come for a while.
    fn resume(&mut self) -> io::Result<()> {
        let now = Instant::now();
        for at in 0..self.lanes.len() {
            let Self { lanes, frames, .. } = self;
            let Some(lane) = lanes.get_mut(at) else { continue };
            match lane.requester.due(now) {
                Due::Wait(_) => continue,
                Due::Over => {
                    self.reopen(at)?;
                    continue;
                }
                Due::Again => {}
            }
            let mut sent = Ok(());
            lane.requester.again(&mut sending(frames, &mut sent));
            sent?;
        }
        Ok(())
    }
}

/// Opens a queue pair, of a number that none of these has.
fn lane<F: Frames>(server: SocketAddr, frames: &F, others: &[Lane]) -> io::Result<Lane> {
    let route = frames.route();
    let is_taken = |qpn| others.iter().any(|other| other.requester.qpn() == qpn);
    let mut near = near_end(&route);
    while is_taken(near.qpn) {
        near = near_end(&route);
    }
    let mut service = Connection::open(server)?;
    let far = service::connect(&mut service, &near)?;
    let requester = Requester::new(&route, &near, &far);
    Ok(Lane { service, requester })
}

impl<F: Frames> Link for Reads<F> {
    fn tag(&mut self, request: &Request) -> Tag {
        let number = u32::try_from(self.clients.len()).unwrap_or(0);
        let lane = *self.clients.entry(request.datagram.src).or_insert(number);
        Tag { lane, id: request.id }
    }

    fn send(&mut self, frame: &[u8], request: Option<(&Request, Tag)>) -> io::Result<Taken> {
        let Some((request, tag)) = request else { return Ok(Taken::Never) };
        let text = frame.get(request.datagram.payload.clone()).and_then(udp::request);
        let Some(text) = text.filter(|_| request.protocol == Protocol::Ascii) else {
            return Ok(Taken::Never);
        };
        let at = tag.lane as usize % self.lanes.len().max(1);
        match request.asked {
            Asked::Get(keys) => {
                if self.lanes.get(at).is_some_and(|lane| lane.requester.under_way() >= DEPTH) {
                    return Ok(Taken::Full);
                }
                let get = Get { tag, left: keys as usize, text: udp::header(tag.id).to_vec() };
                let get = self.gets.add(get);
                let mut asked = Ok(());
                request.protocol.keys(text, &mut |key| {
                    if asked.is_ok() {
                        asked = self.fetch(at, get, key);
                    }
                });
                asked?;
            }
            Asked::Set | Asked::Delete => {
                let Some(lane) = self.lanes.get_mut(at) else { return Ok(Taken::Never) };
                lane.service.send(text)?;
                let mut reply = udp::header(tag.id).to_vec();
                lane.service.receive(|come| match parse(Protocol::Ascii, come)? {
                    None => Ok::<_, io::Error>(None),
                    Some((_, rest)) => {
                        let said = come.get(..come.len() - rest.len());
                        reply.extend_from_slice(said.unwrap_or_default());
                        Ok(Some(((), rest)))
                    }
                })?;
                self.finished.push_back((tag, reply));
            }
            Asked::Other => return Ok(Taken::Never),
        }
        Ok(Taken::Sent)
    }

    fn receive(&mut self, each: &mut dyn FnMut(Option<u32>, &[u8])) -> io::Result<usize> {
        let mut frames = 0;
        while frames < TURN && self.take()? {
            frames += 1;
        }
        // Whatever came: it may all have been of other queue pairs.
        self.resume()?;
        let got = self.finished.len();
        for (tag, reply) in self.finished.drain(..) {
            each(Some(tag.lane), &reply);
        }
        Ok(got)
    }

    fn wait(&mut self, at_most: Duration) -> io::Result<()> {
        self.frames.wait(at_most.min(TIMEOUT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driver_shim::MacAddr;
    use gnomon_client::requester::Route;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::{Ipv4Addr, TcpListener};
    use wire::build::UdpFrame;

    /// A service that opens queue pairs, and has one value under every key.
    fn service() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                std::thread::spawn(move || {
                    for line in BufReader::new(stream.try_clone().unwrap()).lines() {
                        let line = line.unwrap();
                        let mut words = line.split(' ');
                        let said = match (words.next(), words.next()) {
                            (Some("mg"), Some(key)) => {
                                format!("VA 5 f3 k{key} g0000000000000abc,48\r\nshine\r\n")
                            }
                            _ => "RDMA 17 1 ::ffff:127.0.0.1 1024\r\n".to_owned(),
                        };
                        stream.write_all(said.as_bytes()).unwrap();
                    }
                });
            }
        });
        address
    }

    /// A network that is never without a frame, none of them a response.
    #[derive(Debug)]
    struct Noise;

    impl Frames for Noise {
        fn route(&self) -> Route {
            let here = Ipv4Addr::LOCALHOST.into();
            Route { macs: [MacAddr([0; 6]); 2], between: [here, here] }
        }

        fn send(&mut self, _: &[u8]) -> io::Result<()> {
            Ok(())
        }

        fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
            into[..60].fill(0xff);
            Ok(60)
        }

        fn wait(&mut self, _: Duration) -> io::Result<()> {
            Ok(())
        }
    }

    fn get(id: u16, key: &str) -> Vec<u8> {
        let text = [&udp::header(id)[..], format!("get {key}\r\n").as_bytes()].concat();
        let between = SocketAddr::from((Ipv4Addr::LOCALHOST, 11211));
        let mut frame = [0; 256];
        let macs = MacAddr([2; 6]);
        let len = UdpFrame {
            src_mac: macs,
            dst_mac: macs,
            vlans: &[],
            src: between,
            dst: between,
            payload: &text,
        }
        .write_to(&mut frame)
        .unwrap();
        frame[..len].to_vec()
    }

    #[test]
    fn what_does_not_come_is_requested_again_while_other_frames_do() {
        let mut reads = Reads::connect(service(), 1, Noise).unwrap();
        let send = |reads: &mut Reads<Noise>, id| {
            let frame = get(id, "sun");
            let request = Request::parse(&frame).unwrap();
            let tag = reads.tag(&request);
            assert_eq!(reads.send(&frame, Some((&request, tag))).unwrap(), Taken::Sent);
        };
        // The first brings the stag, the second is a READ.
        send(&mut reads, 1);
        send(&mut reads, 2);
        let (mut came, end) = (0, Instant::now() + 40 * TIMEOUT);
        while reads.counts().reopened == 0 && Instant::now() < end {
            came += reads.receive(&mut |_, reply| assert!(reply.ends_with(b"END\r\n"))).unwrap();
        }
        let ReadCounts { asked, resumed, reopened, .. } = reads.counts();
        assert_eq!((came, asked, resumed, reopened), (1, 1, 7, 1));
        // On another pair, that starts anywhere.
        send(&mut reads, 3);
        assert_eq!(reads.counts().asked, 2);
    }
}
