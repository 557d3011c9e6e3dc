//! Many clients at once: makes a history.
//!
//! In: where the server is, and how many clients, keys and operations. Out: for each key,
//! every operation on it with its two times. Before that the keys are deleted, so that every
//! history begins with no item. Fails: as soon as one client does.

use super::client::{Client, ClientError};
use super::mix::{LONG, Mix, Next};
use super::model::{Answer, Call, Lifetime, Op};
use super::wire::Verb;
use gnomon_client::codec::connection::Connection;
use gnomon_client::codec::request::text;
use std::net::SocketAddr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// What one history is made of.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the server listens, for both protocols.
    pub server: SocketAddr,
    /// Clients over TCP.
    pub tcp_clients: u32,
    /// Clients over UDP.
    pub udp_clients: u32,
    /// Keys that they all use.
    pub keys: usize,
    /// Operations of all clients together.
    pub operations: u64,
    /// The verbs, each alike likely; reads a little more, and flushes far less.
    pub verbs: Vec<Verb>,
    /// Items are stored and touched for some seconds, too.
    pub expires: bool,
    /// How late the server's clock may be.
    pub late: Duration,
    /// A further client stores other items all the time, so that any may be evicted.
    pub evicts: bool,
    /// Of the calls. Who comes first is the machine's choice.
    pub seed: u64,
}

impl Config {
    /// The key's name, its number given.
    pub fn key(&self, n: usize) -> String {
        format!("linear:{n}")
    }

    /// The shortest time in seconds that items are stored for, if they are to expire: so long that none of them is gone
    /// at once, however late the server's clock may be.
    fn shortest(&self) -> Option<u32> {
        let seconds = u32::try_from(self.late.as_secs()).unwrap_or(u32::MAX);
        self.expires.then(|| seconds.saturating_add(2))
    }

    /// When the item goes by itself after a request that was under way so long.
    fn lifetime(&self, next: &Next, invoked: u64, returned: u64) -> Option<Lifetime> {
        if !next.verb.sets_exptime() && !matches!(next.call, Call::Store { .. }) {
            return None;
        }
        let mut lifetime = Lifetime::NEVER;
        if (1..LONG).contains(&next.exptime) {
            let ns = |seconds: u32| u64::from(seconds) * NS_PER_SECOND;
            // The server's clock goes on once a second, and late where it has no CPU: what is stored then ends early.
            let late = u64::try_from(self.late.as_nanos()).unwrap_or(u64::MAX);
            let early = late.saturating_add(NS_PER_SECOND);
            lifetime.may_end = (invoked + ns(next.exptime)).saturating_sub(early);
            lifetime.must_end = returned.saturating_add(ns(next.exptime)).saturating_add(late);
        }
        if self.evicts {
            lifetime.may_end = 0;
        }
        Some(lifetime)
    }
}

const NS_PER_SECOND: u64 = 1_000_000_000;

/// Keys of the items that others are evicted for, and requests between two looks whether it is enough.
const OTHERS: u64 = 1_000_000;
const OTHERS_AT_ONCE: u64 = 500;

/// Stores other items, as long as these, until it is to stop.
fn store_others(server: SocketAddr, stop: &AtomicBool) -> Result<(), ClientError> {
    let mut connection = Connection::open(server)?;
    let mut n = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let mut requests = Vec::new();
        for _ in 0..OTHERS_AT_ONCE {
            text(
                &format!("set other:{} 0 0 8 noreply", n % OTHERS),
                Some(b"evicted?"),
                &mut requests,
            );
            n += 1;
        }
        connection.send(&requests)?;
    }
    Ok(())
}

/// Makes one history: the operations on each key.
///
/// # Errors
/// A client's.
pub fn run(config: &Config) -> Result<Vec<Vec<Op>>, ClientError> {
    let clients = config.tcp_clients + config.udp_clients;
    let names: Vec<String> = (0..config.keys).map(|n| config.key(n)).collect();
    let mut first = Client::tcp(config.server)?;
    for name in &names {
        first.ask(name, Verb::Delete, &Call::Delete { only: None }, 0)?;
    }
    let connected: Vec<Client> = (0..clients)
        .map(|n| match n < config.tcp_clients {
            true => Client::tcp(config.server),
            false => Client::udp(config.server),
        })
        .collect::<Result<_, _>>()?;
    let (begun, together) = (Instant::now(), Barrier::new(connected.len()));
    let share = config.operations.div_ceil(u64::from(clients.max(1)));
    let stop = AtomicBool::new(false);
    let parts = std::thread::scope(|scope| {
        let others = config.evicts.then(|| scope.spawn(|| store_others(config.server, &stop)));
        let threads: Vec<_> = (0..clients)
            .zip(connected)
            .map(|(n, client)| {
                let (names, together) = (&names, &together);
                scope.spawn(move || {
                    together.wait();
                    one_client(config, client, n, share, names, begun)
                })
            })
            .collect();
        let parts: Vec<_> = threads.into_iter().map(ScopedJoinHandle::join).collect();
        stop.store(true, Ordering::Relaxed);
        others.map_or(Ok(()), |others| done(others.join()))?;
        parts.into_iter().map(done).collect::<Result<Vec<_>, ClientError>>()
    })?;
    let mut history = vec![Vec::new(); config.keys];
    for (key, op) in parts.into_iter().flatten() {
        match op.call {
            // Each key has it.
            Call::Flush => history.iter_mut().for_each(|ops| ops.push(op.clone())),
            _ => history[key].push(op),
        }
    }
    Ok(history)
}

/// What a thread returned; its panic goes on here.
fn done<T>(joined: std::thread::Result<T>) -> T {
    joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn one_client(
    config: &Config,
    mut client: Client,
    number: u32,
    share: u64,
    names: &[String],
    begun: Instant,
) -> Result<Vec<(usize, Op)>, ClientError> {
    let is_udp = number >= config.tcp_clients;
    // Over UDP a flush is refused.
    let verbs = config.verbs.iter().copied().filter(|verb| !(is_udp && verb.is_flush()));
    let mut mix = Mix::new(verbs.collect(), config.keys, config.shortest(), number, config.seed);
    let clients = config.tcp_clients + config.udp_clients;
    let now = || u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let mut process = number;
    let mut ops = Vec::new();
    for _ in 0..share {
        let next = mix.next_call();
        let invoked = now();
        let answer = client.ask(&names[next.key], next.verb, &next.call, next.exptime)?;
        let mut returned = now();
        mix.heard(next.key, &answer);
        let asked_by = process;
        if answer == Answer::Lost {
            returned = u64::MAX;
            // What was lost may still happen, beside what the client does from now on.
            process += clients;
        }
        let lifetime = config.lifetime(&next, invoked, returned);
        let op = Op { process: asked_by, call: next.call, answer, invoked, returned, lifetime };
        ops.push((next.key, op));
    }
    Ok(ops)
}
