//! A port whose device says what the test sets, looked at as the control plane looks.

use super::*;
use driver_shim::{MacAddr, PortControl, PortCounters, PortEvents, PortInfo, ResetError, TxCaps};
use std::time::Duration;
use wire::Local;

/// What the device says, and what was done to it.
#[derive(Debug, Default)]
struct Device {
    link_up: bool,
    events: PortEvents,
    resets_that_fail: u32,
    resets: u32,
    stopped: u32,
}

struct Control(Arc<Mutex<Device>>);

impl PortControl for Control {
    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }

    fn link_up(&self) -> bool {
        self.0.lock().link_up
    }

    fn events(&mut self) -> PortEvents {
        std::mem::take(&mut self.0.lock().events)
    }

    fn reset(&mut self) -> Result<(), ResetError> {
        let mut device = self.0.lock();
        device.resets += 1;
        if device.resets <= device.resets_that_fail {
            return Err("not today".into());
        }
        Ok(())
    }

    fn stop(&mut self) -> bool {
        self.0.lock().stopped += 1;
        true
    }
}

fn port() -> (OpenPort, Arc<Mutex<Device>>, Watched) {
    let device = Arc::new(Mutex::new(Device { link_up: true, ..Device::default() }));
    let mac = MacAddr([2, 0, 0, 0, 0, 1]);
    let info = PortInfo {
        name: "pretended".to_owned(),
        mac,
        mtu: 1500,
        tx_caps: TxCaps::default(),
        any_destination: false,
        busy_poll: false,
        flows_stray: false,
    };
    let port = OpenPort {
        info,
        local: Arc::new(Local::new(mac, &[], 11_211).unwrap()),
        queues: Vec::new(),
        exception_path: None,
        announcer: Some(Arc::default()),
        control: Box::new(Control(Arc::clone(&device))),
        addresses: Vec::new(),
    };
    (port, device, Watched::default())
}

/// Looks five times a second, for so long.
fn watch(port: &mut OpenPort, watched: &mut Watched, from: Instant, time: Duration) {
    let mut now = from;
    while now <= from + time {
        look_at_port(port, watched, now);
        now += Duration::from_millis(200);
    }
}

#[test]
fn a_reset_that_fails_at_first_is_done_within_three_seconds() {
    let (mut port, device, mut watched) = port();
    let begun = Instant::now();
    watch(&mut port, &mut watched, begun, Duration::from_secs(1));
    assert_eq!(device.lock().resets, 0);
    {
        let mut device = device.lock();
        device.events.reset_wanted = true;
        device.resets_that_fail = 3;
    }
    watch(&mut port, &mut watched, begun + Duration::from_secs(1), Duration::from_secs(3));
    assert_eq!(device.lock().resets, 4);
    let counts = watched.watch.counts();
    assert_eq!((counts.resets, counts.reset_failures, counts.link_changes), (1, 3, 0));
    assert_eq!((watched.watch.state(), device.lock().stopped), (PortState::Up, 0));
}

#[test]
fn addresses_are_announced_at_the_start_after_a_reset_and_when_the_link_is_back() {
    let (mut port, device, mut watched) = port();
    let announcer = port.announcer.clone().unwrap();
    let begun = Instant::now();
    // Whether there was an order within four seconds, and whether there is none after them.
    let mut announces = |from_s: u64| {
        let from = begun + Duration::from_secs(from_s);
        watch(&mut port, &mut watched, from, Duration::from_secs(4));
        let ordered = announcer.take();
        watch(&mut port, &mut watched, from + Duration::from_secs(5), Duration::from_secs(4));
        (ordered, !announcer.take())
    };
    assert_eq!(announces(0), (true, true));
    // The link is up before, in and after it.
    device.lock().events.reset_wanted = true;
    assert_eq!(announces(10), (true, true));
    assert_eq!(device.lock().resets, 1);
    device.lock().link_up = false;
    assert_eq!(announces(20), (false, true));
    device.lock().link_up = true;
    assert_eq!(announces(30), (true, true));
}

#[test]
fn a_device_that_is_gone_is_closed_once() {
    let (mut port, device, mut watched) = port();
    device.lock().events.removed = true;
    watch(&mut port, &mut watched, Instant::now(), Duration::from_secs(2));
    device.lock().events = PortEvents { reset_wanted: true, removed: true };
    watch(&mut port, &mut watched, Instant::now(), Duration::from_secs(2));
    let device = device.lock();
    assert_eq!((device.stopped, device.resets), (1, 0));
    assert!(watched.watch.counts().removed);
    assert_eq!(watched.told, PortState::Removed);
}

#[test]
fn a_link_that_flaps_is_told_now_and_then_and_its_last_state_in_the_end() {
    let (mut port, device, mut watched) = port();
    let begun = Instant::now();
    for n in 0..100 {
        device.lock().link_up = n % 2 == 0;
        look_at_port(&mut port, &mut watched, begun + Duration::from_millis(n * 200));
    }
    assert_eq!(watched.watch.counts().link_changes, 99);
    device.lock().link_up = true;
    watch(&mut port, &mut watched, begun + Duration::from_secs(21), Duration::from_secs(2));
    assert_eq!(watched.told, PortState::Up);
}

#[test]
fn a_exception_path_is_told_of_when_it_goes_and_when_it_is_back() {
    let (.., mut watched) = port();
    let begun = Instant::now();
    for (n, up) in [1, 0, 0, 1].into_iter().enumerate() {
        let path = ExceptionPathCounters { up, ..ExceptionPathCounters::default() };
        let now = begun + Duration::from_secs(2) * u32::try_from(n).unwrap();
        look_at_exception_path("pretended", &path, &mut watched, now);
        assert_eq!(watched.door_gone, up == 0);
    }
    // Gone and back between two looks.
    let path = ExceptionPathCounters { up: 1, reopened: 1, ..ExceptionPathCounters::default() };
    look_at_exception_path("pretended", &path, &mut watched, begun + Duration::from_secs(20));
    assert_eq!(watched.door_reopened, 1);
}
