//! A bad cable between two TAP devices: what enters one leaves the other, but for losses, copies, frames
//! that others overtake and bits that turn, in both directions alike.
//!
//!     bad_wire NAME NAME LOSS REORDER DUPLICATE FLIP      in frames of a million
//!
//! Runs until its standard input ends, and then says what it did.

use driver_shim::ports::fault::{FaultConfig, Faults, PerMillion, wrap};
use driver_shim::ports::tap::{Tap, TapConfig};
use driver_shim::{Burst, MacAddr, Pages, QueuePair, Region, RxQueue, TxQueue};
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Frames that may wait for a device: its own queue holds 1,000.
const SLOTS: u32 = 4096;
const PAUSE: Duration = Duration::from_micros(200);

#[derive(Clone)]
struct End {
    tap: Arc<Mutex<Tap>>,
    region: Region,
}

impl End {
    fn with<R>(&self, f: impl FnOnce(&mut Tap) -> R) -> R {
        f(&mut self.tap.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl RxQueue for End {
    fn burst(&mut self, into: &mut Burst) -> usize {
        let before = into.len();
        while !into.is_full() {
            let Some(mut frame) = self.region.alloc() else { break };
            if !self.with(|tap| tap.read(&mut frame)).unwrap_or(false) {
                break;
            }
            into.push(frame);
        }
        into.len() - before
    }
}

impl TxQueue for End {
    fn burst(&mut self, from: &mut Burst) -> usize {
        let all = from.len();
        for frame in from.drain(..) {
            // What the kernel has no room for is lost, as on any cable.
            let _ = self.with(|tap| tap.write(frame.bytes()));
        }
        all
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let names: Vec<String> = arguments.by_ref().take(2).collect();
    let rates: Vec<u32> = arguments.map(|n| n.parse()).collect::<Result<_, _>>()?;
    let ([a, b], &[lose, reorder, duplicate, flip]) = (&names[..], &rates[..]) else {
        return Err("bad_wire NAME NAME LOSS REORDER DUPLICATE FLIP".into());
    };
    let faults = Faults {
        lose: PerMillion(lose),
        reorder: PerMillion(reorder),
        duplicate: PerMillion(duplicate),
        flip: PerMillion(flip),
        ..Faults::default()
    };
    let region = Region::new(SLOTS, Pages::Small)?;
    let open = |name: &String, n: u8| -> Result<_, Box<dyn std::error::Error>> {
        let mac = MacAddr([2, 0, 0, 0, 0x78, n]);
        let config = TapConfig { name: name.clone(), mac, mtu: 1500, addrs: Vec::new() };
        let tap = Arc::new(Mutex::new(Tap::open(&config)?));
        let end = End { tap, region: region.clone() };
        let pair = QueuePair { rx: Box::new(end.clone()), tx: Box::new(end.clone()) };
        let config = FaultConfig { seed: u64::from(n), rx: faults, tx: Faults::default() };
        let (pair, counters) = wrap(pair, &region, &config);
        Ok((end, pair, counters))
    };
    let ((end, mut left, left_counts), (_, mut right, right_counts)) = (open(a, 1)?, open(b, 2)?);
    println!("ready");
    let over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&over);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        told.store(true, Ordering::Relaxed);
    });
    let mut burst = Burst::new();
    while !over.load(Ordering::Relaxed) {
        let mut moved = 0;
        for (from, to) in [(&mut left.rx, &mut right.tx), (&mut right.rx, &mut left.tx)] {
            moved += from.burst(&mut burst);
            while !burst.is_empty() {
                to.burst(&mut burst);
            }
        }
        if moved == 0 {
            end.with(|tap| tap.wait(None, PAUSE));
        }
    }
    println!("{a} to {b}: {:?}", left_counts.rx());
    println!("{b} to {a}: {:?}", right_counts.rx());
    Ok(())
}
