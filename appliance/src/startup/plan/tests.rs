use super::resources::{INDEX_SHARE, SLOTS_PER_QUEUE, needed_bytes};
use super::*;
use crate::host::machine::tests::Tree;
use crate::host::machine::{FileFault, FileRoom, FileSystem};
use crate::startup::flags;
use memcache::{Dialect, Dialects};
use std::net::Ipv4Addr;
use std::path::Path;

fn plan_on(machine: &Machine, args: &str) -> Result<Plan, PlanError> {
    let args: Vec<&str> = args.split_whitespace().collect();
    Plan::new(&flags::parse(&args).unwrap(), machine)
}

fn plan(args: &str) -> Result<Plan, PlanError> {
    plan_on(&Machine::pretend(), args)
}

/// The plan of these flags on a pretended machine, for the tests of what is done with plans.
pub(crate) fn planned(args: &str) -> Plan {
    plan(args).unwrap()
}

fn net(s: &str) -> Network {
    s.parse().unwrap()
}

fn cidr(s: &str) -> Cidr {
    s.parse().unwrap()
}

#[test]
fn without_flags_kernel_sockets_on_loopback() {
    let p = plan("").unwrap();
    let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
    let port = PortPlan {
        device: Device::Sockets(vec![loopback]),
        udp_port: 11211,
        tcp_port: None,
        addresses: Vec::new(),
        exception_path: None,
        isolated: Isolated::Off,
    };
    assert_eq!(p.ports, [port]);
    assert_eq!(p.tcp.len(), 1);
    assert_eq!(p.tcp[0].address.to_string(), "127.0.0.1:11211");
    assert_eq!((p.worker_cpus.as_slice(), p.control_cpu), (&[1, 2, 3, 4][..], 0));
    assert_eq!(p.tcp_cpus, [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(p.engine, Engine::Cpu);
    assert_eq!(p.allow, [cidr("127.0.0.0/8"), cidr("::1/128")]);
    assert!(p.notes.is_empty());
    assert_eq!(p.slots, 4 * SLOTS_PER_QUEUE);
}

#[test]
fn tcp_on_a_port_is_the_workers_by_choice() {
    let args = "--port net_tap0 --ip 10.0.0.5/24 --ip fd00::5/64 -p 5000";
    let kernel = planned(args);
    assert!(kernel.tcp.iter().any(|t| t.behind_exception_path));
    assert_eq!((kernel.ports[0].tcp_port, kernel.exception_rate.get()), (None, 10_000));
    let worker = planned(&format!("{args} --tcp worker --exception-rate 77"));
    assert!(!worker.tcp.iter().any(|t| t.behind_exception_path));
    assert_eq!((worker.ports[0].tcp_port, worker.exception_rate.get()), (Some(5000), 77));
    let at: Vec<_> = worker.worker_tcp().map(|a| a.to_string()).collect();
    assert_eq!(at, ["10.0.0.5:5000", "[fd00::5]:5000"]);
    assert_eq!(plan("--tcp worker").unwrap_err(), PlanError::TcpWithoutPort);
    // Who must authenticate is served over TCP alone.
    let alone = |with: &str| {
        let p = plan(&format!("--port net_ring0 --ip 10.0.0.5/24 --tcp worker {with}")).unwrap();
        (p.ports[0].udp_port, p.ports[0].tcp_port)
    };
    assert_eq!([alone("-Y file"), alone("-U 0")], [(0, Some(11211)); 2]);
}

#[test]
fn listen_addresses_make_sockets_grouped_by_port() {
    let p = plan("-l 127.0.0.1,::1,127.0.0.2:99 -p 0 -U 5 --cores 2").unwrap();
    assert!(p.tcp.is_empty());
    let ports: Vec<_> = p.ports.iter().map(|p| (p.udp_port, p.device.clone())).collect();
    let sockets = |ips: &[&str]| Device::Sockets(ips.iter().map(|i| i.parse().unwrap()).collect());
    assert_eq!(ports, [(5, sockets(&["127.0.0.1", "::1"])), (99, sockets(&["127.0.0.2"]))]);
    assert_eq!((p.worker_cpus, p.control_cpu), (vec![2], 0));
}

#[test]
fn one_port_number_is_for_tcp_and_udp() {
    let ports = |line: &str| {
        let p = plan(line).unwrap();
        (p.tcp.first().map(|t| t.address.port()), p.ports.first().map(|p| p.udp_port))
    };
    for (line, expected) in [
        ("", (Some(11211), Some(11211))),
        ("-p 5", (Some(5), Some(5))),
        ("-U 5", (Some(5), Some(5))),
        ("-p 5 -U 6", (Some(5), Some(6))),
        ("-p 5 -U 0", (Some(5), None)),
        ("-U 0", (Some(11211), None)),
        ("-p 0", (None, Some(11211))),
        ("-p 0 -U 5", (None, Some(5))),
        ("-U -1", (Some(0), Some(0))),
        ("-p -1", (Some(0), Some(0))),
        ("-p -1 --port net_ring0 --ip 10.0.0.1/24", (Some(0), Some(11211))),
        ("-p 5 -Y file", (Some(5), None)),
    ] {
        assert_eq!(ports(line), expected, "{line}");
    }
}

#[test]
fn tcp_alone_needs_no_worker_and_no_slots() {
    let p = plan("-U 0 -p -1").unwrap();
    assert!(p.ports.is_empty() && p.worker_cpus.is_empty());
    assert_eq!(p.tcp[0].address.port(), 0);
    assert_eq!(p.slots, 0);
}

#[test]
fn dpdk_ports_get_their_addresses_subnets_and_a_exception_path() {
    let p = plan("--port net_tap0,iface=a --ip 10.0.0.1/24 --ip fd00::1/64").unwrap();
    assert_eq!(p.ports[0].addresses, [net("10.0.0.1/24"), net("fd00::1/64")]);
    assert_eq!(p.allow[2..], [cidr("10.0.0.0/24"), cidr("fd00::/64")]);
    assert_eq!(p.ports[0].exception_path.as_deref(), Some("gnomon0"));
    assert_eq!(p.worker_cpus, [1, 2, 3, 4, 5, 6, 7]);
    let tcp: Vec<_> =
        p.tcp.iter().map(|t| (t.address.to_string(), t.behind_exception_path)).collect();
    let expected =
        [("127.0.0.1:11211", false), ("10.0.0.1:11211", true), ("[fd00::1]:11211", true)];
    assert_eq!(tcp, expected.map(|(a, b)| (a.to_owned(), b)));
    let p = plan("--port net_tap0 --ip 10.0.0.1/24 -l 0.0.0.0").unwrap();
    assert_eq!(p.tcp.len(), 1);
    let p = plan("--port net_tap0 --ip 10.0.0.1/24 --side-door none --allow 10.1.0.0/16").unwrap();
    assert_eq!((p.ports[0].exception_path.as_ref(), p.tcp.len()), (None, 1));
    assert_eq!(p.allow, [cidr("10.1.0.0/16")]);
}

#[test]
fn each_port_has_a_exception_path_of_its_own() {
    let names = |args: &str| -> Vec<_> {
        let two = "--port net_ring0 --port net_ring1 --ip 0=10.0.0.1/8 --ip 1=11.0.0.1/8";
        let one = "--port net_ring0 --ip 10.0.0.1/8";
        let taps =
            |p: Plan| p.ports.into_iter().filter_map(|p| p.exception_path).collect::<Vec<_>>();
        [one, two].into_iter().flat_map(|p| taps(plan(&format!("{p} {args}")).unwrap())).collect()
    };
    assert_eq!(names(""), ["gnomon0", "gnomon0", "gnomon1"]);
    assert_eq!(names("--side-door tap"), ["gnomon0", "gnomon0", "gnomon1"]);
    assert_eq!(names("--side-door tap=kv"), ["kv", "kv0", "kv1"]);
    assert!(names("--side-door none").is_empty());
}

#[test]
fn a_device_must_exist_and_be_free_for_dpdk() {
    let t = Tree::new("pci", &[("bus/pci/devices/0000:81:00.0/vendor", "0x8086")]);
    let m = Machine { sysfs: t.0.clone(), ..Machine::pretend() };
    let on = |driver: &str| {
        let link = t.0.join("bus/pci/devices/0000:81:00.0/driver");
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(format!("../../drivers/{driver}"), link).unwrap();
        plan_on(&m, "--port 81:00.0 --ip 10.0.0.1/24")
    };
    let said = |r: Result<Plan, PlanError>| r.unwrap_err().to_string();
    assert!(on("vfio-pci").is_ok());
    assert!(on("mlx5_core").is_ok());
    assert!(said(on("ixgbe")).contains("0000:81:00.0 is held by ixgbe: bind it to vfio-pci first"));
    let other = plan_on(&m, "--port 82:00.0 --ip 10.0.0.1/24");
    assert!(said(other).contains("--port 0000:82:00.0: no such PCI device"));
}

#[test]
fn a_port_is_isolated_where_the_kernel_keeps_its_addresses() {
    let t = Tree::new("isolated", &[("bus/pci/devices/0000:81:00.0/net/eth1/mtu", "1500")]);
    let (v4, v6) = ("10.0.0.1", "fd00::1");
    let on = |driver: &str, own: &[(&str, &str)], args: &str| {
        let link = t.0.join("bus/pci/devices/0000:81:00.0/driver");
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(format!("../../drivers/{driver}"), link).unwrap();
        let own = own.iter().map(|(name, ip)| ((*name).to_owned(), ip.parse().unwrap()));
        let m = Machine { sysfs: t.0.clone(), addresses: own.collect(), ..Machine::pretend() };
        let plan = plan_on(&m, &format!("--port 81:00.0 --ip {v4}/24 --ip {v6}/64 {args}"));
        plan.map(|plan| plan.ports[0].isolated)
    };
    let both = [("eth1", v4), ("lo", "127.0.0.1"), ("eth1", v6)];
    assert_eq!(on("mlx5_core", &both, ""), Ok(Isolated::Auto));
    assert_eq!(on("mlx4_core", &both, ""), Ok(Isolated::Auto));
    assert_eq!(on("mlx5_core", &both, "--isolated off"), Ok(Isolated::Off));
    assert_eq!(on("vfio-pci", &both, ""), Ok(Isolated::Off));
    assert_eq!(on("mlx5_core", &both[..1], ""), Ok(Isolated::Off));
    assert_eq!(on("mlx5_core", &[("eth2", v4), ("eth1", v6)], ""), Ok(Isolated::Off));
    assert_eq!(on("mlx5_core", &[], "--isolated on"), Ok(Isolated::On));
    let said = on("vfio-pci", &both, "--isolated on").unwrap_err().to_string();
    assert!(said.contains("the kernel does not share 0000:81:00.0"), "{said}");
    let vdev = |args: &str| planned(&format!("--port net_tap0 --ip {v4}/24 {args}"));
    assert_eq!(vdev("").ports[0].isolated, Isolated::Off);
    assert_eq!(vdev("--isolated on").ports[0].isolated, Isolated::On);
}

#[test]
fn workers_and_memory_are_on_the_nics_node() {
    let (near, far, both) = ("81:00.0", "82:00.0", "81:00.0 --port 82:00.0 --ip 1=10.0.1.1/24");
    let t = Tree::new(
        "numa",
        &[
            ("bus/pci/devices/0000:81:00.0/numa_node", "1"),
            ("bus/pci/devices/0000:82:00.0/numa_node", "0"),
            ("bus/pci/devices/0000:83:00.0/numa_node", "-1"),
            ("devices/system/node/node0/cpulist", "0-3"),
            ("devices/system/node/node1/cpulist", "4-7"),
            ("devices/system/node/node1/meminfo", "Node 1 MemFree: 102400 kB"),
        ],
    );
    for nic in 1..=3 {
        let link = t.0.join(format!("bus/pci/devices/0000:8{nic}:00.0/driver"));
        std::os::unix::fs::symlink("../../drivers/vfio-pci", link).unwrap();
    }
    let m = Machine { sysfs: t.0.clone(), ..Machine::pretend() };
    let on =
        |port: &str, more: &str| plan_on(&m, &format!("--port {port} --ip 0=10.0.0.1/24 {more}"));
    let got = |port: &str, more: &str| {
        let p = on(port, more).unwrap();
        (p.numa.map(|numa| numa.node), p.worker_cpus, p.control_cpu)
    };
    let all = vec![1, 2, 3, 4, 5, 6, 7];
    assert_eq!(got(near, ""), (Some(1), vec![4, 5, 6, 7], 0));
    assert_eq!(got(near, "--control-core 5"), (Some(1), vec![4, 6, 7], 5));
    assert_eq!(got(far, ""), (Some(0), vec![1, 2, 3], 0));
    assert_eq!(got(near, "--cores 2,4"), (Some(1), vec![2, 4], 0));
    assert_eq!(got(near, "--numa-node off"), (None, all.clone(), 0));
    assert_eq!(got(near, "--numa-node 0"), (Some(0), vec![1, 2, 3], 0));
    // The firmware does not say, or there is none to say it of.
    assert_eq!(got("83:00.0", ""), (None, all.clone(), 0));
    assert_eq!(got("net_null0", ""), (None, all.clone(), 0));
    assert_eq!(got(both, ""), (None, all, 0));
    assert!(on(both, "").unwrap().notes[0].contains("on NUMA nodes 0 and 1"));
    // Too little of it.
    let notes = |m: &str| on(near, m).unwrap().notes;
    assert!(notes("-m 1000")[0].contains("NUMA node 1 has 100 MB free of 1"), "{:?}", notes(""));
    assert!(notes("-m 8").is_empty(), "{:?}", notes("-m 8"));
    let none = on(near, "--numa-node 2").unwrap_err().to_string();
    assert!(none.contains("--numa-node 2: there is no such node here; choose of 0, 1"), "{none}");
    // Only CPUs of the other node are allowed.
    let m = Machine { cpus: vec![2, 3], ..m };
    let p = plan_on(&m, "--port 81:00.0 --ip 10.0.0.1/24").unwrap();
    let numa = p.numa.unwrap();
    assert_eq!((numa.node, numa.cpus, p.worker_cpus), (1, vec![], vec![3]));
    // One node is no choice.
    assert!(plan("--numa-node 0").unwrap_err().to_string().contains("this kernel knows of none"));
}

#[test]
fn memory_is_compared_with_what_there_is() {
    let small = Machine { memory_available_bytes: Some(50 << 20), ..Machine::pretend() };
    let said = plan_on(&small, "-p 1 -U 0").unwrap_err().to_string();
    assert_eq!(
        said,
        "64 MB for items, 9 MB for their index and 0 MB for packets are more than the 50 MB available: \
         lower -m or --slots, or free memory"
    );
    let huge = Machine { huge_free_bytes: 100 << 20, ..small.clone() };
    assert!(plan_on(&huge, "-U 0").is_ok());
    assert!(plan_on(&huge, "-U 0 --huge off").is_err());
    assert_eq!(plan_on(&huge, "-U 0 --huge on").unwrap().huge, Pages::Require);
    let said = plan_on(&small, "-U 0 --huge on").unwrap_err().to_string();
    assert!(said.contains("needs 37 huge pages of 2 MB and 0 are free"), "{said}");
    let unknown = Machine { memory_available_bytes: None, ..small };
    assert!(plan_on(&unknown, "").is_ok());
}

#[test]
fn what_is_needed_counts_what_dpdk_takes() {
    let needed = |args: &str, queues| {
        let args: Vec<&str> = args.split_whitespace().collect();
        needed_bytes(&flags::parse(&args).unwrap(), queues) >> 20
    };
    let items_and_packets = 64 + 64 / 7 + 8;
    assert_eq!(needed("-m 64", 1), items_and_packets);
    let own = if cfg!(feature = "dpdk") { 48 + 4096 / 2048 } else { 0 };
    assert_eq!(needed("-m 64 --port net_ring0 --ip 10.0.0.1/24", 1), items_and_packets + own);
}

#[test]
fn the_index_is_no_larger_than_planned() {
    use store::{Store, StoreConfig};
    for mb in [8u64, 64, 256] {
        let memory_bytes = usize::try_from(mb << 20).unwrap();
        let config = StoreConfig {
            memory_bytes,
            pages: driver_shim::Pages::Small,
            ..StoreConfig::default()
        };
        let index = Store::new(config).unwrap().stats().index_bytes;
        assert!(index <= (mb << 20) / INDEX_SHARE + (2 << 20), "{index} bytes for {mb} MB");
    }
}

#[test]
fn one_cpu_serves_everything_and_says_so() {
    let one = Machine { cpus: vec![3], ..Machine::pretend() };
    let p = plan_on(&one, "").unwrap();
    assert_eq!((p.worker_cpus, p.control_cpu, p.tcp_cpus), (vec![3], 3, vec![3]));
    assert!(p.notes[0].contains("CPU 3 serves packets and everything else"));
}

#[test]
fn listening_to_strangers_without_allow_is_noted() {
    assert!(plan("-l 0.0.0.0").unwrap().notes[0].contains("UDP listens on 0.0.0.0"));
    assert!(plan("-l 0.0.0.0 -U 0").unwrap().notes.is_empty());
    assert!(plan("-l 0.0.0.0 --allow 10.0.0.0/8").unwrap().notes.is_empty());
}

#[test]
fn each_contradiction_is_told_with_a_way_out() {
    for (args, said) in [
        ("-p 0 -U 0", "nothing to serve: -p 0 turns TCP off and -U 0 turns UDP off"),
        ("--port net_ring0 -U 0 --ip 10.0.0.1/8", "--port serves UDP: give -U a port of its own"),
        ("--port net_ring0 -U -1 --ip 10.0.0.1/8", "--port serves UDP: give -U a port of its own"),
        ("--port net_ring0 --port net_ring0", "--port net_ring0 is given twice"),
        ("--port net_ring0", "port 0 (net_ring0) has no address: give it one with --ip 0=ADDR/LEN"),
        (
            "--port net_ring0 --port net_ring1 --ip 0=10.0.0.1/8",
            "port 1 (net_ring1) has no address",
        ),
        ("--port net_ring0 --port net_ring1 --ip 10.0.0.1/8", "--ip 10.0.0.1/8: of which port?"),
        ("--port net_ring0 --ip 1=10.0.0.1/8", "--ip 1=…: there are 1 ports"),
        ("--port net_ring0 --ip 127.0.0.1/8", "not a loopback, multicast or unspecified one"),
        ("--port net_ring0 --ip 10.0.0.1/8 --ip 10.0.0.1/8", "--ip 10.0.0.1 is given twice"),
        (
            "--port net_ring0 --ip 10.0.0.1/8 --ip 10.0.0.2/8 --ip 10.0.0.3/8 --ip 10.0.0.4/8 --ip 10.0.0.5/8 \
             --ip 10.0.0.6/8 --ip 10.0.0.7/8 --ip 10.0.0.8/8 --ip 10.0.0.9/8",
            "port 0 has more than 8 addresses of one IP version",
        ),
        ("--ip 10.0.0.1/8", "--ip names addresses of a --port, and there is none"),
        ("--side-door tap", "--side-door tap needs a --port"),
        ("-- --no-telemetry", "arguments after -- are for DPDK"),
        ("--cores 6-9", "--cores: CPU 8 is not among those that this process may use (0-7)"),
        ("--control-core 8", "--control-core: CPU 8 is not among those"),
        ("--cores 1-2 --control-core 2", "--control-core 2 is also in --cores"),
        ("-m 99999999999999", "cannot be addressed"),
        (
            "-m 9000",
            "9000 MB for items, 1285 MB for their index and 32 MB for packets are more than the 8192 MB available",
        ),
        ("-I 1023", "-I 1023: an item's limit must lie between 1k and 1024m"),
        ("-I 1025m", "-I 1074790400: an item's limit must lie between 1k and 1024m"),
        ("-m 0", "-m 0: memory for items has a limit here; say how many megabytes"),
        ("--slots 10 --cores 1", "--slots 10 is too few: 1 queues need at least 1280"),
        ("-c 65536", "-c 65536 needs 65688 open files and the limit is 65536"),
        ("-f 1", "-f 1: the growth factor must be greater than 1"),
        ("-f NaN", "the growth factor must be greater than 1"),
        (
            "--port net_ring0 --port net_ring1 --side-door tap=0123456789abcde",
            "--side-door tap=0123456789abcde0: a device name has at most 15 characters",
        ),
        ("-o hashpower=12", "-o hashpower=12: with -t 4 memcached wants more: leave it out"),
        ("-t 10 -o hashpower=13", "-o hashpower=13: with -t 10 memcached wants more"),
        ("-S", "-S: SASL is not supported: use -Y FILE"),
        ("-Z", "-Z: name the server's certificate"),
        ("-Y a -U 5", "-Y: no client can authenticate over UDP"),
        ("-Y a -U -1", "-Y: no client can authenticate over UDP"),
        ("-Y a --port net_ring0 --ip 10.0.0.1/8", "-Y: a --port serves UDP"),
        ("-Y a -B binary", "-Y: only clients of the ASCII protocol can authenticate"),
        ("-s /x --port net_ring0 --ip 10.0.0.1/8", "-s serves a Unix socket and no network"),
        ("-n 1048577", "-n 1048577: the smallest chunk would be larger than the largest item"),
        ("--engine simt", "--engine simt is not available in this build"),
    ] {
        let error = plan(args).expect_err(args).to_string();
        assert!(error.contains(said), "{args}: {error}");
    }
    let no_dpdk = Machine { has_dpdk: false, ..Machine::pretend() };
    assert_eq!(plan_on(&no_dpdk, "--port net_ring0"), Err(PlanError::NoDpdk));
    let no_cpus = Machine { cpus: Vec::new(), ..Machine::pretend() };
    assert_eq!(plan_on(&no_cpus, ""), Err(PlanError::NoCpus));
}

#[test]
fn a_memory_file_needs_its_place() {
    const MB: u64 = 1 << 20;
    let on = |look_at_file, args: &str| {
        let m = Machine { look_at_file, huge_free_bytes: 500 * MB, ..Machine::pretend() };
        plan_on(&m, args)
    };
    let p = plan("-e /dev/shm/items -m 4000").unwrap();
    assert_eq!(p.memory_file.unwrap(), Path::new("/dev/shm/items"));
    assert_eq!(plan("").unwrap().memory_file, None);
    // Items, and 2 MB that say what they are.
    assert!(plan("-e /x -m 4095").is_ok(), "whole pages");
    let error = plan("-e /dev/shm/items -m 4096").unwrap_err().to_string();
    assert!(error.starts_with("-e /dev/shm/items: 4098 MB are needed and"), "{error}");
    assert!(error.contains("has 4096 MB: make that larger"), "{error}");
    let error = plan("-e /x --huge on").unwrap_err().to_string();
    assert!(error.contains("--huge on: -e /x is not in a hugetlbfs: mount one"), "{error}");

    // What the file has already is neither free nor needed again.
    let full = |_: &Path| {
        let system = FileSystem::Tmpfs;
        Ok(FileRoom { system, taken_bytes: 6002 * MB, free_bytes: Some(MB) })
    };
    let most = Machine { memory_available_bytes: Some(2000 * MB), ..Machine::pretend() };
    let machine = Machine { look_at_file: full, ..most.clone() };
    assert!(plan_on(&machine, "-e /x -m 6000").is_ok());
    assert!(matches!(plan_on(&machine, "-e /x -m 6002"), Err(PlanError::MemoryFileSpace { .. })));
    assert!(matches!(plan_on(&most, "-e /x -m 3000"), Err(PlanError::Memory { .. })));
    let disk = |_: &Path| {
        let system = FileSystem::Disk;
        Ok(FileRoom { system, taken_bytes: 6002 * MB, free_bytes: None })
    };
    let machine = Machine { look_at_file: disk, ..most };
    assert!(matches!(plan_on(&machine, "-e /x -m 6000"), Err(PlanError::Memory { .. })));

    let huge = |_: &Path| {
        let system = FileSystem::Hugetlbfs { page_bytes: 2 * MB };
        Ok(FileRoom { system, taken_bytes: 0, free_bytes: None })
    };
    assert!(on(huge, "-e /x -m 400 --huge on").is_ok());
    assert!(on(huge, "-e /x -m 450 --huge on").is_err(), "with index and packets");
    assert!(matches!(on(huge, "-e /x -m 500"), Err(PlanError::MemoryFileSpace { .. })));
    let giant = |_: &Path| {
        let system = FileSystem::Hugetlbfs { page_bytes: 1 << 30 };
        Ok(FileRoom { system, taken_bytes: 0, free_bytes: None })
    };
    let error = on(giant, "-e /x").unwrap_err().to_string();
    assert!(error.contains("pages of 1024 MB: mount one with pages of 2 MB"), "{error}");
    let error = on(|_| Err(FileFault::NotAFile), "-e /x").unwrap_err().to_string();
    assert_eq!(error, "-e /x: not a regular file; name one in a tmpfs or a hugetlbfs");
}

#[test]
fn engines_that_are_there_are_taken() {
    let m = Machine { has_simt: true, ..Machine::pretend() };
    for (args, engine) in
        [("", Engine::Cpu), ("--engine cpu", Engine::Cpu), ("--engine simt", Engine::Simt)]
    {
        let plan = plan_on(&m, args).unwrap();
        assert_eq!(plan.engine, engine);
        assert_eq!(plan.offload.is_some(), engine != Engine::Cpu);
    }
    let without = Machine { has_simt: false, ..Machine::pretend() };
    let error = plan_on(&without, "--engine simt").unwrap_err().to_string();
    assert!(error.contains("--engine simt is not available in this build"), "{error}");
}

#[test]
fn a_gpu_is_used_where_there_is_one() {
    let there =
        Machine { find_gpu: Some(|| Gpu::Found(vec!["one".to_owned()])), ..Machine::pretend() };
    assert_eq!(plan_on(&there, "").unwrap().engine, Engine::Auto);
    assert_eq!(plan_on(&there, "--engine gpu").unwrap().engine, Engine::Gpu);
    assert_eq!(plan_on(&there, "--engine cpu").unwrap().engine, Engine::Cpu);
    let none =
        Machine { find_gpu: Some(|| Gpu::Absent("none here".to_owned())), ..Machine::pretend() };
    assert_eq!(plan_on(&none, "").unwrap().engine, Engine::Cpu);
}

#[test]
fn how_a_gpu_is_used_follows_from_flags_and_memory() {
    let m = Machine { has_simt: true, ..Machine::pretend() };
    let offload = |args: &str| plan_on(&m, args).unwrap().offload.unwrap();
    let plan = offload("-m 64 --engine simt");
    assert_eq!((plan.mode.name(), plan.index.name()), ("launch", "setassoc"));
    assert_eq!(
        (plan.index_bytes, plan.deadline_ms, plan.verify_one_in.get()),
        (16 << 20, 10_000, 1024)
    );
    assert!(!plan.headers && offload("--engine simt --gpu-replies headers").headers);
    let whole = offload("--engine simt --gpu-replies complete --gpu-values 3");
    assert_eq!((whole.index.name(), whole.index_bytes), ("rows", 3 << 20));
    let plan = offload(
        "--engine simt --gpu-mode persistent --index cuckoo --index-memory 7 --index-cycle 50 \
         --index-every 3 --gpu-deadline 9 --gpu-verify-ratio 2 --gpu-device 1",
    );
    assert_eq!((plan.mode.name(), plan.index.name()), ("persistent", "cuckoo"));
    assert_eq!((plan.index_bytes, plan.deadline_ms, plan.verify_one_in.get()), (7 << 20, 9, 2));
    assert_eq!((plan.cycle_us, plan.every, plan.device), (50, 3, 1));
    for (flags, says) in [
        ("--gpu-values 3", "--gpu-values is for --gpu-replies complete"),
        ("--gpu-values 3 --gpu-replies headers", "--gpu-values is for --gpu-replies complete"),
        ("--index-memory 5 --gpu-replies complete", "say --gpu-values"),
    ] {
        let error = plan_on(&m, flags).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn flags_about_clients_become_facts() {
    let c = plan("").unwrap().clients;
    assert_eq!((c.backlog, c.requests_per_turn, c.dialect), (1024, 20, Dialects::Auto));
    assert_eq!((c.idle_timeout_seconds, c.refuse_over_limit), (0, true));
    assert!(c.flush_allowed && !c.shutdown_allowed && c.cas_enabled);
    assert_eq!(plan("-D |").unwrap().clients.prefix_delimiter, b'|');
    let c = plan("-b 7 -R 3 -B binary -FAC -o no_modern,idle_timeout=9").unwrap().clients;
    assert_eq!(
        (c.backlog, c.requests_per_turn, c.dialect),
        (7, 3, Dialects::Only(Dialect::Binary))
    );
    assert_eq!((c.idle_timeout_seconds, c.refuse_over_limit), (9, false));
    assert!(!c.flush_allowed && c.shutdown_allowed && !c.cas_enabled);
    assert!(plan("-o no_modern,maxconns_fast").unwrap().clients.refuse_over_limit);
    assert_eq!(plan("-n 300").unwrap().chunk_min_bytes, 300);
}

#[test]
fn one_sided_reads_need_a_port_and_no_tls() {
    assert!(!plan("").unwrap().clients.rdma);
    assert!(plan("--port net_ring0 --ip 10.0.0.5/24 --rdma").unwrap().clients.rdma);
    assert_eq!(plan("--rdma").unwrap_err(), PlanError::RdmaWithoutPort);
    let with_tls = "--port net_ring0 --ip 10.0.0.5/24 --rdma -Z";
    assert_eq!(plan(with_tls).unwrap_err(), PlanError::RdmaWithTls);
}

#[test]
fn workers_speak_tls_on_ports_that_serve_tcp_alone() {
    let flags = "--port net_ring0 --ip 10.0.0.5/24 -Z -o ssl_chain_cert=/cert";
    assert_eq!(plan(flags).unwrap_err(), PlanError::TlsWithPort);
    let p = plan(&format!("{flags} --tcp worker -o ssl_ca_cert=/ca,ssl_verify_mode=2")).unwrap();
    assert_eq!(p.tls.unwrap().clients, ClientCerts::Required);
    let behind = p.tcp.iter().filter(|listener| listener.behind_exception_path);
    assert_eq!(behind.count(), 0);
    assert_eq!((p.ports.len(), p.ports[0].tcp_port), (1, Some(11_211)));
    // What such a connection holds in part is planned for.
    let most = "--port net_ring0 --ip 10.0.0.5/24 --tcp worker -c 1000000";
    let bytes = |args: &str| {
        let args: Vec<&str> = args.split_whitespace().collect();
        needed_bytes(&flags::parse(&args).unwrap(), 1)
    };
    let tls = bytes(&format!("{most} -Z -o ssl_chain_cert=/cert")) - bytes(most);
    assert_eq!(tls, 1_000_000 * dataplane::stages::stream::TLS_CONNECTION_BYTES);
}

#[test]
fn a_unix_socket_takes_the_place_of_the_network() {
    let p = plan("-s /run/kv -a 770 -p 1 -U 1").unwrap();
    assert!(p.tcp.is_empty() && p.ports.is_empty() && p.worker_cpus.is_empty());
    let unix = p.clients.unix.unwrap();
    assert_eq!((unix.path.to_str(), unix.mask.0), (Some("/run/kv"), 0o770));
    let here = plan("-s kv -P pid -Y auth").unwrap();
    assert!(here.clients.unix.unwrap().path.is_absolute());
    assert!(here.clients.auth_file.unwrap().is_absolute());
    assert!(here.process.pid_file.unwrap().is_absolute());
}

#[test]
fn authentication_turns_udp_off_and_the_binary_protocol() {
    let p = plan("-Y /auth").unwrap();
    assert!(p.ports.is_empty() && p.tcp.len() == 1);
    assert_eq!(p.clients.dialect, Dialects::Only(Dialect::Ascii));
    assert!(p.notes[0].contains("-Y turns UDP off"), "{:?}", p.notes);
    assert!(plan("-Y /auth -U 0").unwrap().notes.is_empty());
    assert!(plan("-Y /auth -s /kv").unwrap().notes.is_empty());
}

#[test]
fn what_changes_nothing_is_listed() {
    assert!(plan("-o idle_timeout=1,maxconns_fast").unwrap().unused.is_empty());
    let p = plan("-XWL -o modern,hashpower=20").unwrap();
    assert_eq!(p.unused, ["-L", "-o modern", "-o hashpower=20"]);
}

#[test]
fn settings_have_memcacheds_names() {
    let settings = plan("-s /kv -FC -R 5 -Y /auth").unwrap().settings();
    for (name, value) in [
        ("domain_socket", "/kv"),
        ("umask", "700"),
        ("flush_enabled", "no"),
        ("cas_enabled", "no"),
        ("reqs_per_event", "5"),
        ("binding_protocol", "ascii"),
        ("auth_enabled_ascii", "yes"),
        ("tcpport", "0"),
        ("udpport", "0"),
    ] {
        assert!(settings.contains(&(name, value.to_owned())), "{name}");
    }
}

#[test]
fn asking_for_a_gpu_tells_exactly_what_is_missing() {
    let said = |find_gpu: Option<fn() -> Gpu>| {
        let m = Machine { find_gpu, ..Machine::pretend() };
        plan_on(&m, "--engine gpu").unwrap_err().to_string()
    };
    assert_eq!(
        said(None),
        "--engine gpu: this build leaves out CUDA (the feature cuda): use --engine auto or cpu"
    );
    assert_eq!(
        said(Some(|| Gpu::Absent("no driver: install it".to_owned()))),
        "--engine gpu: no driver: install it; or use --engine auto or cpu"
    );
}

#[test]
fn trusted_networks_are_allowed_and_by_default_the_own_ones() {
    let port = "--port net_tap0 --ip 10.0.0.1/24";
    let own = [cidr("127.0.0.0/8"), cidr("::1/128"), cidr("10.0.0.0/24")];
    let p = plan(port).unwrap();
    assert_eq!((&p.allow[..], &p.policy.trusted[..]), (&own[..], &own[..]));
    // Allowing more networks trusts no more of them.
    let p = plan(&format!("{port} --allow 10.0.0.0/8")).unwrap();
    assert_eq!(p.allow, [cidr("10.0.0.0/8")]);
    assert_eq!(p.policy.trusted, [cidr("10.0.0.0/24")]);
    // A network that is not allowed is not trusted.
    let p = plan(&format!("{port} --allow 10.0.0.64/26,10.5.0.0/16")).unwrap();
    assert_eq!(p.policy.trusted, [cidr("10.0.0.64/26")]);
    assert!(plan(&format!("{port} --allow 10.5.0.0/16")).unwrap().policy.trusted.is_empty());
    // Trusting more allows more.
    let p = plan(&format!("{port} --trusted 10.2.0.0/16")).unwrap();
    assert_eq!(p.policy.trusted, [cidr("10.2.0.0/16")]);
    assert_eq!(p.allow, [&own[..], &[cidr("10.2.0.0/16")]].concat());
    let p = plan(&format!("{port} --allow 10.9.0.0/16 --trusted 10.2.0.0/16")).unwrap();
    assert_eq!(p.allow, [cidr("10.9.0.0/16"), cidr("10.2.0.0/16")]);
    let p = plan(&format!("{port} --allow 10.2.0.0/16 --trusted 10.2.0.0/16")).unwrap();
    assert_eq!(p.allow, [cidr("10.2.0.0/16")]);
    assert!(p.notes.is_empty());
}

#[test]
fn less_memory_than_can_be_used_is_rounded_up_and_noted() {
    for mb in 1..4 {
        let p = plan(&format!("-m {mb}")).unwrap();
        assert_eq!(p.memory_bytes, 4 << 20);
        assert!(p.notes[0].starts_with(&format!("-m {mb}: items have 4 MB")), "{:?}", p.notes);
    }
    assert!(plan("-m 4").unwrap().notes.is_empty());
}

#[test]
fn trusting_every_source_is_noted() {
    for all in ["0.0.0.0/0", "::/0"] {
        let p = plan(&format!("--trusted {all}")).unwrap();
        assert!(
            p.notes[0].starts_with(&format!("--trusted {all} is every source")),
            "{:?}",
            p.notes
        );
    }
    assert!(plan("--trusted 10.0.0.0/8 -l 0.0.0.0").unwrap().notes.is_empty());
}

#[test]
fn the_policy_of_the_plan_is_the_flags() {
    let p = plan("--amp-factor 7 --rate-limit 5:1k --rate-limit-total :9 --rate-limit-trusted off");
    let policy = p.unwrap().policy.policy();
    assert_eq!(policy.amp_factor.get(), 7);
    let numbers =
        |r: dataplane::policy::Rate| (r.requests.map(u32::from), r.reply_bytes.map(u64::from));
    assert_eq!(numbers(policy.source), (Some(5), Some(1024)));
    assert_eq!(numbers(policy.total), (None, Some(9)));
    assert_eq!(numbers(policy.trusted_source), (None, None));
    assert_eq!(policy.answers.map(u32::from), Some(1000));
}
