//! Values read in the memory file of a server on this machine (`-e FILE --shared-reads`), and asked for over a socket.
//!
//!     shared HOST:PORT|SOCKET FILE [SECONDS]
//!
//! Checks some values and prints a line for each check; with SECONDS, prints how many values it gets a second, each way
//! for so long. Exit status 1 if a check failed.

use gnomon_client::codec::connection::Connection;
use gnomon_client::{Shared, SharedClient};
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

type Client = SharedClient<Connection>;

/// Keys that are got in turn.
const KEYS: usize = 1000;

fn service(server: &str) -> Result<Connection, Box<dyn Error>> {
    match server.contains('/') {
        true => Ok(Connection::open_unix(Path::new(server))?),
        false => Ok(Connection::open_named(server)?),
    }
}

fn value(len: usize, seed: u8) -> Vec<u8> {
    (0_u8..=250).cycle().take(len).map(|byte| byte ^ seed).collect()
}

/// Gets values of this length for so long, and says how many a second.
fn measure(client: &mut Client, len: usize, at_most: Duration) -> Result<f64, Box<dyn Error>> {
    let keys: Vec<String> = (0..KEYS).map(|n| format!("measured-{len}-{n}")).collect();
    for key in &keys {
        client.set(key.as_bytes(), 0, &value(len, 7))?;
    }
    let (mut got, begun) = (0_u32, Instant::now());
    while begun.elapsed() < at_most {
        for key in &keys {
            let right = client.get(key.as_bytes())?.is_some_and(|got| got.value.len() == len);
            got += u32::from(right);
        }
    }
    Ok(f64::from(got) / begun.elapsed().as_secs_f64())
}

fn run() -> Result<bool, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, file, seconds @ ..] = &arguments[..] else {
        return Err("shared HOST:PORT|SOCKET FILE [SECONDS]".into());
    };
    let mut client = Client::new(service(server)?, Some(Shared::open(Path::new(file))?));
    let mut all_right = true;
    let mut check = |right: bool, what: &str| {
        println!("{} {what}", if right { "ok     " } else { "FAILED " });
        all_right &= right;
    };
    let lens = [0, 1, 5, 64, 1000, 10_000, 65_536, 1_000_000];
    let mut right = 0;
    for (n, len) in (1..).zip(lens) {
        let key = format!("shared{len}");
        for seed in [n, n + 100] {
            client.set(key.as_bytes(), 7, &value(len, seed))?;
            let got = client.get(key.as_bytes())?;
            right +=
                usize::from(got.is_some_and(|got| got.value == value(len, seed) && got.flags == 7));
        }
    }
    let counts = client.counts();
    check(right == 2 * lens.len(), &format!("{right} values of 0 to 1,000,000 bytes are right"));
    check(counts.reads == 16 && counts.asked == 0, &format!("each was read: {counts:?}"));
    let mut other = Client::new(service(server)?, None);
    other.set(b"shared64", 0, b"another's")?;
    let got = client.get(b"shared64")?.is_some_and(|got| got.value == b"another's");
    check(got && client.counts().gone == 1, "what another client has stored is asked for");
    check(client.get(b"nothing")?.is_none(), "a key that there is not is a miss");

    if let Some(seconds) = seconds.first() {
        let at_most = Duration::from_secs(seconds.parse()?);
        for len in [64, 10_000] {
            let read = measure(&mut client, len, at_most)?;
            let asked = measure(&mut other, len, at_most)?;
            println!(
                "{len} B: {read:.0} a second read, {asked:.0} asked, {:.1} times",
                read / asked
            );
        }
        println!("{:?}", client.counts());
    }
    Ok(all_right)
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            println!("FAILED  {why}");
            ExitCode::FAILURE
        }
    }
}
