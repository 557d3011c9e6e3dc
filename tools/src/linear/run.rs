//! Many clients at once: makes a history.
//!
//! In: where the server is, and how many clients, keys and operations. Out: for each key,
//! every operation on it with its two times. Before that the keys are deleted, so that every
//! history begins with no item. Fails: as soon as one client does.

use super::client::{Client, ClientError};
use super::mix::Mix;
use super::model::{Answer, Call, Op};
use super::wire::Verb;
use std::net::SocketAddr;
use std::sync::Barrier;
use std::time::Instant;

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
    /// The verbs, each alike likely; reads a little more.
    pub verbs: Vec<Verb>,
    /// Of the calls. Who comes first is the machine's choice.
    pub seed: u64,
}

impl Config {
    /// The key's name, its number given.
    pub fn key(&self, n: usize) -> String {
        format!("linear-{n}")
    }
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
        first.ask(name, Verb::Delete, &Call::Delete { only: None })?;
    }
    let connected: Vec<Client> = (0..clients)
        .map(|n| match n < config.tcp_clients {
            true => Client::tcp(config.server),
            false => Client::udp(config.server),
        })
        .collect::<Result<_, _>>()?;
    let (begun, together) = (Instant::now(), Barrier::new(connected.len()));
    let share = config.operations.div_ceil(u64::from(clients.max(1)));
    let parts = std::thread::scope(|scope| {
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
        let join = |t: std::thread::ScopedJoinHandle<'_, _>| match t.join() {
            Ok(part) => part,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).collect::<Result<Vec<_>, ClientError>>()
    })?;
    let mut history = vec![Vec::new(); config.keys];
    for (key, op) in parts.into_iter().flatten() {
        history[key].push(op);
    }
    Ok(history)
}

fn one_client(
    config: &Config,
    mut client: Client,
    number: u32,
    share: u64,
    names: &[String],
    begun: Instant,
) -> Result<Vec<(usize, Op)>, ClientError> {
    let mut mix = Mix::new(&config.verbs, config.keys, number, config.seed);
    let clients = config.tcp_clients + config.udp_clients;
    let now = || u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let mut process = number;
    let mut ops = Vec::new();
    for _ in 0..share {
        let (key, verb, call) = mix.next_call();
        let invoked = now();
        let answer = client.ask(&names[key], verb, &call)?;
        let mut returned = now();
        mix.heard(key, &answer);
        let asked_by = process;
        if answer == Answer::Lost {
            returned = u64::MAX;
            // What was lost may still happen, beside what the client does from now on.
            process += clients;
        }
        ops.push((key, Op { process: asked_by, call, answer, invoked, returned }));
    }
    Ok(ops)
}
