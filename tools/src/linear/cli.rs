//! The command line of `gnomon-linear`: flags in, a report and a verdict out.

use super::check::{Verdict, check_counting};
use super::run::{Config, run};
use super::wire::Verb;
use crate::output::say;
use clap::Parser;
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

/// Configurations that the search may try for one key: some hundred times what it needs.
const BUDGET: usize = 20_000_000;

/// Check that a live server is linearizable: many clients use few keys at once, and for each key
/// there must be an order of all operations, each between its request and its answer, that a
/// single item explains.
///
/// Exit status: 0 all histories are linearizable, 1 one is not or could not be made, 2 bad flag.
#[derive(Debug, Clone, Parser)]
#[command(name = "gnomon-linear", version)]
pub struct Flags {
    /// The server.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:11211")]
    pub server: SocketAddr,
    /// Clients over TCP.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub clients: u32,
    /// Clients over UDP, beside those. A lost answer leaves open whether the command took effect.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=256))]
    pub udp_clients: u32,
    /// Keys. Fewer keys, more contention: even ones hold text, odd ones numbers.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(2..=60_000))]
    pub keys: u16,
    /// Histories.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub histories: u32,
    /// Operations in each history.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub operations: u64,
    /// Verbs to use.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "VERB,...")]
    #[arg(
        default_value = "get,gets,gat,gats,set,add,replace,append,prepend,cas,delete,incr,decr,touch,mg,ms,md,ma"
    )]
    pub verbs: Vec<Verb>,
    /// Store and touch items for some seconds, too. Only with many keys, few changes and no flush will they expire
    /// before they are stored again.
    #[arg(long)]
    pub expire: bool,
    /// How late the server's clock may be: the thread that moves it on waits for a CPU, too.
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub late: u64,
    /// Store other items all the time, so that any may be evicted: for a server with little memory.
    #[arg(long)]
    pub evict: bool,
    /// Seed of the first history's calls; each further one takes the next number.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

impl Flags {
    /// Makes and checks the histories, and prints what was found. True when all is well.
    ///
    /// # Errors
    /// A client's, or the standard output's.
    pub fn run(&self) -> Result<bool, Box<dyn Error>> {
        let (mut operations, mut violations, mut gone) = (0, 0, 0);
        for n in 0..self.histories {
            let seed = self.seed.wrapping_add(u64::from(n));
            let config = Config {
                server: self.server,
                tcp_clients: self.clients,
                udp_clients: self.udp_clients,
                keys: usize::from(self.keys),
                operations: self.operations,
                verbs: self.verbs.clone(),
                expires: self.expire,
                late: Duration::from_secs(self.late),
                evicts: self.evict,
                seed,
            };
            for (key, ops) in run(&config)?.iter().enumerate() {
                operations += ops.len();
                let name = config.key(key);
                let (verdict, ended) = check_counting(ops, BUDGET);
                gone += ended;
                match verdict {
                    Verdict::Linearizable => {}
                    Verdict::Violation(violation) => {
                        violations += 1;
                        say(format_args!(
                            "seed {seed}, key {name}: not linearizable\n{violation}"
                        ))?;
                    }
                    Verdict::Undecided => {
                        violations += 1;
                        say(format_args!(
                            "seed {seed}, key {name}: undecided after {BUDGET} steps"
                        ))?;
                    }
                }
            }
        }
        if self.expire || self.evict {
            say(format_args!("{gone} answers show items that had expired or were evicted"))?;
        }
        say(format_args!(
            "{} histories, {operations} operations, {} clients ({} over UDP), {} keys, seed {}: \
             {violations} violations",
            self.histories,
            self.clients + self.udp_clients,
            self.udp_clients,
            self.keys,
            self.seed
        ))?;
        Ok(violations == 0)
    }
}
