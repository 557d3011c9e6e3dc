//! Values by one-sided reads, checked: through kernel sockets, or by libibverbs (feature `verbs`).
//!
//!     reads HOST:PORT sockets|verbs
//!
//! Prints a line for each check; exit status 1 if one failed.

use gnomon_client::codec::connection::Connection;
use gnomon_client::frames::FrameReader;
use gnomon_client::service::Service;
use gnomon_client::sockets::Sockets;
use gnomon_client::{Client, ReadError, Reader, Stag};
use std::error::Error;
use std::process::ExitCode;

/// One of several readers.
struct Any(Box<dyn Reader>);

impl Reader for Any {
    fn read(&mut self, stag: u64, into: &mut [u8]) -> Result<(), ReadError> {
        self.0.read(stag, into)
    }
}

fn reader(way: &str, service: &mut Connection) -> Result<Any, Box<dyn Error>> {
    match way {
        "sockets" => {
            let sockets = Sockets::beside(service)?;
            Ok(Any(Box::new(FrameReader::connect(service, sockets)?)))
        }
        #[cfg(feature = "verbs")]
        "verbs" => Ok(Any(Box::new(gnomon_client::verbs::Verbs::connect(service)?))),
        _ => Err(format!("no such way: {way}").into()),
    }
}

fn value(len: usize, seed: u8) -> Vec<u8> {
    (0_u8..=250).cycle().take(len).map(|byte| byte ^ seed).collect()
}

fn run() -> Result<bool, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(server), Some(way)) = (arguments.next(), arguments.next()) else {
        return Err("reads HOST:PORT sockets|verbs".into());
    };
    let mut all_right = true;
    let mut check = |right: bool, what: &str| {
        println!(
            "{} {what}, by the Rust client ({way})",
            if right { "ok     " } else { "FAILED " }
        );
        all_right &= right;
    };
    let mut service = Connection::open_named(&server)?;
    let reader = reader(&way, &mut service)?;
    let mut client = Client::new(service, Some(reader));

    let lens = [1, 2, 3, 5, 64, 952, 980, 984, 985, 1000, 1024, 4096, 10_000, 50_001, 65_536];
    let mut right = 0;
    for (n, len) in (1..).zip(lens) {
        let key = format!("rust{len}");
        for seed in [n, n + 100] {
            client.set(key.as_bytes(), 7, &value(len, seed))?;
            let got = client.get(key.as_bytes())?;
            right +=
                usize::from(got.is_some_and(|got| got.value == value(len, seed) && got.flags == 7));
        }
    }
    let counts = client.counts();
    check(right == 2 * lens.len(), &format!("{right} values of 1 to 65,536 bytes are right"));
    check(counts.reads == 30 && counts.asked == 0, &format!("each by one READ: {counts:?}"));

    // Another client changes what this one has stags of.
    let mut other = Connection::open_named(&server)?;
    let mut store = |value: &[u8]| Service::<Stag>::set(&mut other, b"rust64", 3, value);
    store(&value(3000, 9))?;
    let grown = client.get(b"rust64")?.is_some_and(|got| got.value == value(3000, 9));
    check(grown && client.counts().longer == 1, "what has grown is read again");
    store(&value(10, 8))?;
    let shrunk = client.get(b"rust64")?.is_some_and(|got| got.value == value(10, 8));
    check(shrunk && client.counts().longer == 1, "what has shrunk is read at once");
    store(&value(70_000, 7))?;
    let asked = client.counts().asked;
    let long = client.get(b"rust64")?.is_some_and(|got| got.value == value(70_000, 7));
    check(long && client.counts().asked == asked + 1, "what is too long for a READ is asked for");
    check(client.get(b"nothing")?.is_none(), "a key that there is not is a miss");
    check(client.last_error().is_none(), "the queue pair is as it was");

    // Another pair, on a connection of its own, in the place of the first.
    drop(client.take_reader());
    let mut service = Connection::open_named(&server)?;
    let another = self::reader(&way, &mut service)?;
    client.renew(service, Some(another));
    let reads = client.counts().reads;
    client.set(b"rust64", 7, &value(64, 6))?;
    let again = client.get(b"rust64")?.is_some_and(|got| got.value == value(64, 6));
    check(
        again && client.has_reader() && client.counts().reads == reads + 1,
        "another queue pair reads, too",
    );
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
