//! What people and programs read.

use super::*;
use crate::host::machine::{Gpu, Machine};
use crate::startup::flags;
use crate::startup::plan::tests::planned as plan;
use wire::DropReason;

#[test]
fn the_default_plan_reads_so() {
    assert_eq!(
        plan_text(&plan("")),
        "\
sockets       127.0.0.1, UDP port 11211
TCP           127.0.0.1:11211; 4 threads, 1024 connections at most
workers       4 on any CPU
TCP threads   CPU 0-7
connections   27 MB of requests and replies at most
items         64 MB, 1 MB each at most, growth factor 1.25, evicting
packets       16384 slots (32 MB)
huge pages    where there are any
engine        cpu
batches       512 requests at most, adaptive
UDP allowed   127.0.0.0/8, ::1/128
UDP trusted   127.0.0.0/8, ::1/128
each trusted  no rate limit
each other    10000 requests and 4 MB of replies per second
all others    100000 requests and 40 MB of replies per second
others' reply 3 times the request at most
pings         1000 per second and worker; as many ARP and ND
"
    );
}

#[test]
fn a_profile_reads_so() {
    let profile = |args: &str| {
        let text = plan_text(&plan(args));
        let row = |name| text.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
        (row("profile       "), row("items         "))
    };
    let pages = "64:3,128:3,256:2,512:2,1024:2,2048:2,4096:2,8192:2,16384:2,32768:2,65536:2,131072:2,\
                 262144:2,524288:2,1048576:2";
    let says = |pages, rest| format!("fpga: -B binary, UDP, -f 2, --slab-pages {pages}, {rest}");
    assert_eq!(
        profile("--profile fpga"),
        (
            says(pages, "--evict round-robin, --batch 1"),
            format!("64 MB, 1 MB each at most, pages {pages}, evicting round robin")
        )
    );
    let own = "--profile fpga --slab-pages 64:1,1k:2 --evict clock --batch 8";
    assert_eq!(
        profile(own),
        (
            says("64:1,1024:2", "--evict clock, --batch 8"),
            "6 MB, 1 MB each at most, pages 64:1,1024:2, evicting".to_owned()
        )
    );
    let (text, _) = profile("--profile fpga -U 0 -B auto");
    assert!(text.starts_with("fpga: -B auto, no UDP, -f 2, "), "{text}");
    assert!(!plan_text(&plan("--slab-pages 64:8")).contains("profile"));
    let text = plan_text(&plan("--batch-mode periodic --index-cycle 160"));
    assert!(text.contains("512 requests at most, periodic in cycles of 160 us"), "{text}");
}

#[test]
fn a_plan_with_a_port_reads_so() {
    let args = "-p 0 -M -I 512k --huge off --port net_tap0,iface=kv --ip 10.0.0.1/24 --cores 1,3 \
                --batch 64 --batch-mode fixed --allow 10.0.0.0/8 --amp-factor 5 --rate-limit 500 \
                --rate-limit-total :1m --rate-limit-trusted 9:9 --rate-limit-ping off \
                -- --no-telemetry";
    assert_eq!(
        plan_text(&plan(args)),
        "\
port 0        net_tap0,iface=kv: 10.0.0.1/24, UDP port 11211
exceptions    gnomon0
TCP           off
workers       2 on CPU 1,3
control       CPU 0
items         64 MB, 512 KB each at most, growth factor 1.25, never evicting
packets       8192 slots (16 MB)
huge pages    never
engine        cpu
batches       64 requests at most, fixed
UDP allowed   10.0.0.0/8
UDP trusted   10.0.0.0/24
each trusted  9 requests and 9 bytes of replies per second
each other    500 requests per second
all others    1 MB of replies per second
others' reply 5 times the request at most
pings         any number; ARP and ND too
EAL           --no-telemetry
"
    );
}

#[test]
fn the_plan_tells_what_gpu_was_found() {
    let with = |find: fn() -> Gpu, args: &[&str]| {
        let machine = Machine { find_gpu: Some(find), ..Machine::pretend() };
        let plan = Plan::new(&flags::parse(args).unwrap(), &machine).unwrap();
        let json = serde_json::to_value(&plan).unwrap();
        (plan_text(&plan), json["engine"].clone(), json.get("gpu").cloned())
    };
    let two = || Gpu::Found(vec!["device A".to_owned(), "device B".to_owned()]);
    let (text, engine, json) = with(two, &[]);
    assert!(
        text.contains("GPU           device A") && text.contains("GPU           device B"),
        "{text}"
    );
    assert_eq!(engine, "auto");
    assert_eq!(json, Some(serde_json::json!({ "found": ["device A", "device B"] })));

    let (text, engine, json) = with(|| Gpu::Absent("no driver: install it".to_owned()), &[]);
    assert!(
        text.contains(
            "\nGPU           none, and the CPU looks requests up; no driver: install it\n"
        ),
        "{text}"
    );
    assert_eq!(engine, "cpu");
    assert_eq!(json, Some(serde_json::json!({ "absent": "no driver: install it" })));

    let (text, engine, json) = with(|| panic!("no GPU was asked for"), &["--engine", "cpu"]);
    assert!(!text.contains("GPU"), "{text}");
    assert_eq!((engine, json), ("cpu".into(), None));
}

#[test]
fn tcp_alone_reads_so() {
    let text = plan_text(&plan("-U 0 -l 0.0.0.0 -p -1"));
    assert!(text.starts_with("TCP           0.0.0.0:0; 4 threads"), "{text}");
    assert!(text.contains("workers       none: UDP is off\n"));
    let text = plan_text(&plan("-U 0 -e /dev/shm/items --shared-reads"));
    assert!(text.contains("\nshared reads  clients who may open the memory file"), "{text}");
    assert!(!text.contains("packets") && !text.contains("batches"));
}

#[test]
fn the_report_tells_of_refusals_and_the_exception_path() {
    let worker = Arc::new(WorkerCounters::default());
    worker.received.add(9);
    worker.answered.add(4);
    worker.amplification_refused.add(2);
    worker.responded.add(1);
    for reason in [DropReason::RateSource, DropReason::RateSource, DropReason::Amplification] {
        worker.count_drop(reason);
    }
    worker.punted.add(2);
    let path = ExceptionPathCounters {
        punted: 7,
        written: 5,
        read: 4,
        sent_on: 3,
        held_back: 6,
        ..ExceptionPathCounters::default()
    };
    let ports = vec![
        PortReport::new("with".to_owned(), PortCounters::default(), Some(path)),
        PortReport::new("without".to_owned(), PortCounters::default(), None),
    ];
    let ops = OpTotals::default();
    let served = Duration::from_secs(1);
    let report = Report::new(served, &[worker], (8, 8), ports, &ops, Vec::new(), Ok(None));
    assert!(report.balanced);
    let text = report.to_string();
    for row in [
        "frames        9 received = 4 answered + 2 punted + 3 dropped + 0 in flight\n",
        "  dropped     1 amplification\n  dropped     2 rate_source\n",
        "refused       2 replies larger than --amp-factor allows\n",
        "  exceptions  5 to the kernel, 3 from it, 2 and 1 lost, held back 6 times\nport          without",
    ] {
        assert!(text.contains(row), "{row} is not in {text}");
    }
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["amplification_refused"], 2);
    assert_eq!(json["responded"], 1);
    assert_eq!(json["ports"][0]["side_door"]["written"], 5);
    assert!(json["ports"][1].get("side_door").is_none());
}

#[test]
fn the_plan_in_json() {
    let plan = plan("--port net_tap0 --ip 10.0.0.1/24 --cores 2 -l ::1");
    let json = serde_json::to_value(&plan).unwrap();
    let expected = serde_json::json!({
        "ports": [{
            "device": { "vdev": "net_tap0" },
            "udp_port": 11211,
            "tcp_port": 11211,
            "addresses": ["10.0.0.1/24"],
            "side_door": "gnomon0",
            "isolated": "off",
        }],
        "tcp": [{ "address": "[::1]:11211", "behind_side_door": false }],
        "tcp_in": "worker",
        "exception_rate": 10_000,
        "tcp_threads": 4,
        "conn_limit": 1024,
        "conn_memory_bytes": 28_311_552,
        "clients": {
            "unix": null,
            "backlog": 1024,
            "requests_per_turn": 20,
            "dialect": "auto",
            "auth_file": null,
            "sasl": false,
            "idle_timeout_seconds": 0,
            "drain_seconds": 5,
            "refuse_over_limit": true,
            "sweeper": true,
            "flush_allowed": true,
            "shutdown_allowed": false,
            "dump_allowed": true,
            "watch_allowed": true,
            "cas_enabled": true,
            "rdma": false,
            "shared_reads": false,
            "prefix_delimiter": 58,
        },
        "process": {
            "daemon": false,
            "pid_file": null,
            "user": null,
            "core_dumps": false,
            "lock_memory": false,
            "sandbox": true,
        },
        "open_files": 1024 + 128 + 4 * 5 + 2,
        "worker_cpus": [2],
        "slots": 4096,
        "cores_given": true,
        "pinned": true,
        "control_cpu": 0,
        "tcp_cpus": [0, 1, 3, 4, 5, 6, 7],
        "memory_bytes": 64 << 20,
        "item_max_bytes": 1 << 20,
        "evict": true,
        "eviction": "clock",
        "growth_factor": 1.25,
        "chunk_min_bytes": 0,
        "huge": "prefer",
        "engine": "cpu",
        "batch": 512,
        "batch_mode": "adaptive",
        "energy": "report",
        "allow": ["127.0.0.0/8", "::1/128", "10.0.0.0/24"],
        "tcp_from_all": true,
        "policy": {
            "trusted": ["127.0.0.0/8", "::1/128", "10.0.0.0/24"],
            "amp_factor": 3,
            "rate_limit": { "requests": 10_000, "reply_bytes": 4 << 20 },
            "rate_limit_total": { "requests": 100_000, "reply_bytes": 40 << 20 },
            "rate_limit_trusted": { "requests": null, "reply_bytes": null },
            "rate_limit_ping": 1000,
        },
        "eal": [],
        "notes": [],
        "unused": [],
    });
    assert_eq!(json, expected);
}
