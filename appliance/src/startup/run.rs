//! From ready to the last line: housekeeping while it serves, then draining in order, then keeping
//! the items, if that is asked.
//!
//! In: a running [`Appliance`] and what stops it. Out: the final [`Report`], in
//! which every frame and every packet slot must be accounted for (D10). Each wait has a bound.

use crate::host::affinity;
use crate::observe::health::Health;
use crate::observe::report::{PortReport, Report};
use crate::process::allocator;
use crate::process::service::{self, Watchdog};
use crate::process::signals::Signals;
use crate::serve::ports::OpenPort;
use crate::serve::tcp::Drained;
use crate::startup::topology::{Appliance, Running};
use driver_shim::Region;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use store::Store;

/// Longest pause between two turns of the store's housekeeping: its clock, sweeper and page mover.
const HOUSEKEEPING: Duration = Duration::from_millis(10);
/// Turns between two looks at ports and threads: what changes goes unnoticed for 200 ms.
const LOOK_TURNS: u64 = 20;
/// How long workers go on when TCP has ended: longer than an idle one sleeps.
const LAST_FRAMES: Duration = Duration::from_millis(50);
/// Longest wait for workers and exception paths to end, beside what workers that serve TCP give clients. A
/// worker gives its engine one second.
const JOIN_MAX: Duration = Duration::from_secs(3);
/// Pause between two looks whether a thread has ended.
const JOIN_PAUSE: Duration = Duration::from_millis(1);

/// Serves until a signal or a client stops it, or until a thread has ended by itself, then
/// drains.
pub fn serve(mut appliance: Appliance, signals: &Signals) -> Report {
    let begun = Instant::now();
    let mut health = Health::new(appliance.ports.len(), appliance.counters.len(), begun);
    let mut broken = Vec::new();
    let mut watchdog = Watchdog::new();
    let mut turn = 0u64;
    while !(signals.stop.load(Ordering::Relaxed) || appliance.server.is_stop_asked())
        && broken.is_empty()
    {
        if signals.reload.swap(false, Ordering::Relaxed) {
            reload(&appliance);
        }
        health.beat(Instant::now());
        if allocator::is_short() {
            allocator::recover();
        }
        appliance.store.housekeep();
        if turn.is_multiple_of(LOOK_TURNS) {
            health.look(appliance.observed(), Instant::now());
            appliance.offloads.iter().for_each(|offloads| offloads.watch());
        }
        broken = ended(&appliance);
        let tcp_is_well = !appliance.tcp.as_ref().is_some_and(|tcp| tcp.is_broken());
        watchdog.beat(health.workers_move() && tcp_is_well);
        turn += 1;
        pause(&appliance.store);
    }
    let served = begun.elapsed();
    tracing::info!("draining");
    service::stopping();
    let drained = drain(&mut appliance, &mut broken);
    let keep = signals.keep.load(Ordering::Relaxed) || appliance.server.is_keep_asked();
    report(appliance, served, broken, drained, keep)
}

/// Until housekeeping's next turn: no second begins in between, so that all are of one length.
fn pause(store: &Store) {
    std::thread::sleep(HOUSEKEEPING.min(store.clock().until_next_second()));
}

/// Reads again what can change while it serves: the file of users, and those of TLS.
fn reload(appliance: &Appliance) {
    let (users, certificates) = (&appliance.credentials, &appliance.certificates);
    match users.as_ref().map(|c| c.reload()) {
        None if certificates.is_none() => tracing::info!("SIGHUP: there is no file to read again"),
        None => {}
        Some(Ok(())) => tracing::info!("SIGHUP: read the authentication file again"),
        Some(Err(error)) => tracing::warn!("SIGHUP: {error}; the users stay as they were"),
    }
    match certificates.as_ref().map(|c| c.reload()) {
        None => {}
        Some(Ok(())) => tracing::info!("SIGHUP: read the certificates again"),
        Some(Err(error)) => tracing::warn!("SIGHUP: {error}; the certificates stay as they were"),
    }
}

/// Names of threads that have ended although they were not stopped.
fn ended(appliance: &Appliance) -> Vec<String> {
    let threads =
        appliance.workers.iter().chain(&appliance.exception_paths).chain(&appliance.updaters);
    let threads = threads.chain(&appliance.handshakes);
    let mut names: Vec<String> =
        threads.filter(|r| r.thread.is_finished()).map(|r| r.name.clone()).collect();
    if appliance.tcp.as_ref().is_some_and(|tcp| tcp.is_broken()) {
        names.push("tcp".to_owned());
    }
    names
}

/// TCP first, which may come by way of the workers; then the workers. Both answer what has been
/// received. Names what did not end well, and says what became of TCP's connections.
fn drain(appliance: &mut Appliance, failed: &mut Vec<String>) -> Drained {
    let (begun, mut drained) = (Instant::now(), Drained::default());
    if let Some(tcp) = appliance.tcp.take() {
        // Clients are served all the while, and what they store needs memory.
        let store = &appliance.store;
        let meanwhile = || {
            store.housekeep();
            pause(store);
        };
        match tcp.stop(meanwhile) {
            Some(connections) => drained = connections,
            None => failed.push("tcp".to_owned()),
        }
    }
    let (Drained { answered, cut }, seconds) = (drained, begun.elapsed().as_secs_f64());
    if cut == 0 {
        tracing::info!("drained: {answered} connections answered in full, after {seconds:.2} s");
    } else {
        tracing::warn!(
            "drained: {answered} connections answered in full; {cut} cut off, after {seconds:.2} s"
        );
    }
    // Workers take in what has been received by now.
    std::thread::sleep(LAST_FRAMES);
    appliance.stop.store(true, Ordering::Relaxed);
    let deadline = Instant::now() + JOIN_MAX + appliance.drain_max;
    let others = appliance.exception_paths.drain(..).chain(appliance.updaters.drain(..));
    let others = others.chain(appliance.handshakes.drain(..)).chain(appliance.metrics.take());
    for running in appliance.workers.drain(..).chain(others) {
        failed.extend(join(running, &appliance.store, deadline).err());
    }
    drained
}

fn join(running: Running, store: &Store, deadline: Instant) -> Result<(), String> {
    while !running.thread.is_finished() {
        if Instant::now() > deadline {
            return Err(running.name);
        }
        // Workers serve TCP clients still.
        store.housekeep();
        std::thread::sleep(JOIN_PAUSE);
    }
    running.thread.join().map_err(|_| running.name)
}

/// Stops a port, whose frames return to the pool, and gives its last counts.
fn close(mut port: OpenPort) -> PortReport {
    let exception_path = port.exception_path.take().map(|path| path.counters());
    port.control.stop();
    PortReport::new(port.info.name, port.control.counters(), exception_path)
}

fn report(
    appliance: Appliance,
    served: Duration,
    failed: Vec<String>,
    drained: Drained,
    keep: bool,
) -> Report {
    let Appliance { counters, ports, regions, server, store, cpus, .. } = appliance;
    let ports: Vec<PortReport> = ports.into_iter().map(close).collect();
    let sum = |figure: fn(&Region) -> usize| regions.iter().map(figure).sum::<usize>();
    let slots = (sum(Region::capacity), sum(Region::available));
    let totals = server.totals();
    // It holds the store, too.
    drop(server);
    let kept = if keep { keep_items(store, &cpus, &failed) } else { Ok(None) };
    let mut report = Report::new(served, &counters, slots, ports, &totals, failed, kept);
    report.connections_cut = drained.cut;
    report
}

/// Leaves the items in their file, if they lie in one: how many, or why not.
fn keep_items(store: Arc<Store>, cpus: &[usize], failed: &[String]) -> Result<Option<u64>, String> {
    if !failed.is_empty() {
        return Err("a thread did not end well, and may have left an item half done".to_owned());
    }
    // No other thread works any more.
    affinity::keep_on(cpus);
    // Standard output, where the report says it, may have no reader.
    store
        .close()
        .map_err(|error| error.to_string())
        .inspect_err(|why| tracing::error!("items LOST: {why}"))
}
