//! What plans follow from flags and machine: the helpers of all these tests, and those of clients, policy and
//! settings.

mod gpu;
mod memory;
mod network;
mod split;

use super::resources::{SLOTS_PER_QUEUE, connection_bytes, needed_bytes, understood};
use super::*;
use crate::host::machine::tests::Tree;
use crate::startup::flags;
use memcache::{Dialect, Dialects};
use std::net::Ipv4Addr;

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

/// Eight CPUs on nodes 0 and 1; NICs 81 on node 1, 82 on node 0, 83 anywhere; and more files.
fn on_two_nodes(name: &str, more: &[(&str, &str)]) -> (Tree, Machine) {
    let nodes = [
        ("bus/pci/devices/0000:81:00.0/numa_node", "1"),
        ("bus/pci/devices/0000:82:00.0/numa_node", "0"),
        ("bus/pci/devices/0000:83:00.0/numa_node", "-1"),
        ("devices/system/node/node0/cpulist", "0-3"),
        ("devices/system/node/node1/cpulist", "4-7"),
        ("devices/system/node/node1/meminfo", "Node 1 MemFree: 102400 kB"),
    ];
    let t = Tree::new(name, &[&nodes, more].concat());
    for nic in 1..=3 {
        let link = t.0.join(format!("bus/pci/devices/0000:8{nic}:00.0/driver"));
        std::os::unix::fs::symlink("../../drivers/vfio-pci", link).unwrap();
    }
    let machine = Machine { sysfs: t.0.clone(), ..Machine::pretend() };
    (t, machine)
}

#[test]
fn localhost_is_both_loopback_addresses_where_the_machine_has_both() {
    let mut machine = Machine::pretend();
    let has = machine.addresses.len();
    machine.addresses.push(("lo".to_owned(), "::1".parse().unwrap()));
    for (args, want) in [
        ("", 2),
        ("-p 99", 2),
        ("-p -1", 1),
        ("-p 99 -U -1", 1),
        ("-l 127.0.0.1", 1),
        ("-l ::1", 1),
    ] {
        assert_eq!(plan_on(&machine, args).unwrap().tcp.len(), want, "{args}");
    }
    let Device::Sockets(ips) = &plan_on(&machine, "").unwrap().ports[0].device else { panic!() };
    assert_eq!(ips.len(), 2);
    machine.addresses.truncate(has);
    assert_eq!(plan_on(&machine, "").unwrap().tcp.len(), 1);
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
    assert_eq!((p.worker_cpus().as_slice(), p.control_cpu), (&[1, 2, 3, 4][..], 0));
    assert_eq!(p.tcp_cpus, [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(p.engine, Engine::Cpu);
    assert_eq!(p.allow, [cidr("127.0.0.0/8"), cidr("::1/128")]);
    assert!(p.notes.is_empty());
    assert_eq!(p.slots(), 4 * SLOTS_PER_QUEUE);
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
        ("--port net_ring0 --tcp kernel -U 0 --ip 10.0.0.1/8", "--port serves UDP: give -U a port"),
        ("--port net_ring0 -U -1 --ip 10.0.0.1/8", "--port serves UDP: give -U a port of its own"),
        ("--port net_ring0 -U 0 -p 0 --ip 10.0.0.1/8", "--port serves UDP: give -U a port"),
        ("--port net_ring0 -U 0 -p -1 --ip 10.0.0.1/8", "--port serves UDP: give -U a port"),
        ("--port net_ring0 -Y a -p 0 --ip 10.0.0.1/8", "--port serves UDP: give -U a port"),
        ("--port net_ring0 --port net_ring0", "--port net_ring0 is given twice"),
        ("--port net_ring0", "port 0 (net_ring0) has no address: give it one with --ip 0=ADDR/LEN"),
        (
            "--port net_ring0 --port net_ring1 --ip 0=10.0.0.1/8",
            "port 1 (net_ring1) has no address",
        ),
        ("--port net_ring0 --port net_ring1 --ip 10.0.0.1/8", "--ip 10.0.0.1/8: of which port?"),
        ("--port net_ring0 --ip 1=10.0.0.1/8", "--ip 1=…: there are 1 ports"),
        (
            "--port net_ring0 --ip 127.0.0.1/8",
            "not a loopback, multicast, broadcast or unspecified one",
        ),
        (
            "--port net_ring0 --ip 255.255.255.255/32",
            "not a loopback, multicast, broadcast or unspecified",
        ),
        ("--port net_ring0 --ip 10.78.0.0/24", "nor a network's first or last"),
        ("--port net_ring0 --ip 10.78.1.255/23", "nor a network's first or last"),
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
        ("-c 65536", "-c 65536 needs 65690 open files and the limit is 65536"),
        ("-f 1", "-f 1: the growth factor must be greater than 1"),
        ("-f NaN", "the growth factor must be greater than 1"),
        (
            "-m 64 --slab-pages 64:2,128:31",
            "--slab-pages has 33 pages of 2 MB, and -m 64 holds fewer: give -m 66, or fewer pages",
        ),
        ("--profile fpga -f 1.5", "-f 1.5: with --profile fpga sizes are powers of two"),
        ("--profile fpga --slab-pages 64:2,192:2", "--slab-pages 192:…: with --profile fpga"),
        (
            "--profile fpga -m 29",
            "--profile fpga: -m 29 has no page of 2 MB for each of 15 sizes: give -m 30 or more",
        ),
        (
            "--port net_ring0 --port net_ring1 --side-door tap=0123456789abcde",
            "--side-door tap=0123456789abcde0: a device name has at most 15 characters",
        ),
        ("-o hashpower=12", "-o hashpower=12: with -t 4 memcached wants more: leave it out"),
        ("-t 10 -o hashpower=13", "-o hashpower=13: with -t 10 memcached wants more"),
        ("-S", "-S: SASL without a file of users"),
        ("-S -Y a -B ascii", "-S: SASL is of the binary protocol alone"),
        ("-Z", "-Z: name the server's certificate"),
        ("-Y a -U 5", "-Y: no client can authenticate over UDP"),
        ("-Y a -U -1", "-Y: no client can authenticate over UDP"),
        ("-Y a --port net_ring0 --ip 10.0.0.1/8 --tcp kernel", "-Y: a --port serves UDP"),
        ("-Y a -B binary", "-Y: clients of the binary protocol can authenticate by SASL alone"),
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
fn a_profile_stands_for_flags_and_those_given_win() {
    let is = |p: Plan| {
        let pages = p.slab_pages.map(|pages| pages.to_string());
        (p.clients.dialect, p.eviction, p.batch, p.memory_bytes >> 20, pages.unwrap_or_default())
    };
    let binary = Dialects::Only(Dialect::Binary);
    let p = plan("--profile fpga -f 2 -I 1k").unwrap();
    assert_eq!((p.growth_factor.to_bits(), p.ports.len()), (2f64.to_bits(), 1));
    let all = "64:7,128:7,256:6,512:6,1024:6".to_owned();
    assert_eq!(is(p), (binary, Eviction::RoundRobin, 1, 64, all));
    let own =
        plan("--profile fpga -B auto --evict clock --batch 9 --slab-pages 64:2,4k:1").unwrap();
    assert!(own.notes[0].contains("-m 64: --slab-pages takes 6 MB of it"), "{:?}", own.notes);
    assert_eq!(is(own), (Dialects::Auto, Eviction::Clock, 9, 6, "64:2,4096:1".to_owned()));
    let none = plan("").unwrap();
    assert_eq!(is(none), (Dialects::Auto, Eviction::Clock, 512, 64, String::new()));
    let turn = plan("--evict round-robin -m 8").unwrap();
    assert_eq!(is(turn), (Dialects::Auto, Eviction::RoundRobin, 512, 8, String::new()));
    let settings = plan("--profile fpga").unwrap().settings();
    assert!(settings.contains(&("evict", "round-robin".to_owned())));
    assert!(settings.contains(&("slab_reassign", "no".to_owned())));
    // One page, and the largest that there can be.
    assert_eq!(plan("--slab-pages 2m:1").unwrap().memory_bytes, 2 << 20);
}

#[test]
fn reads_in_the_memory_file_need_one() {
    assert!(!plan("-e /dev/shm/items").unwrap().clients.shared_reads);
    assert!(plan("-e /dev/shm/items --shared-reads").unwrap().clients.shared_reads);
    assert_eq!(plan("--shared-reads").unwrap_err(), PlanError::SharedReadsWithoutFile);
}

#[test]
fn one_sided_reads_need_a_port_and_no_tls() {
    assert!(!plan("").unwrap().clients.rdma);
    assert!(plan("--port net_ring0 --ip 10.0.0.5/24 --rdma").unwrap().clients.rdma);
    assert_eq!(plan("--rdma").unwrap_err(), PlanError::RdmaWithoutPort);
    let with_its_port = "--port net_ring0 --ip 10.0.0.5/24 --rdma -U 4791";
    assert_eq!(plan(with_its_port).unwrap_err(), PlanError::RdmaUdpPort);
    let with_tls = "--port net_ring0 --ip 10.0.0.5/24 --rdma -Z";
    assert_eq!(plan(with_tls).unwrap_err(), PlanError::RdmaWithTls);
}

#[test]
fn workers_speak_tls_on_ports_that_serve_tcp_alone() {
    let flags = "--port net_ring0 --ip 10.0.0.5/24 -Z -o ssl_chain_cert=/cert";
    let kernel = plan(&format!("{flags} --tcp kernel"));
    assert_eq!(kernel.unwrap_err(), PlanError::TlsWithPort);
    let p = plan(&format!("{flags} -o ssl_ca_cert=/ca,ssl_verify_mode=2")).unwrap();
    assert_eq!(p.tls.unwrap().clients, ClientCerts::Required);
    let behind = p.tcp.iter().filter(|listener| listener.behind_exception_path);
    assert_eq!(behind.count(), 0);
    assert_eq!((p.ports.len(), p.ports[0].tcp_port), (1, Some(11_211)));
    // What such a connection holds in part is planned for.
    let most = "--port net_ring0 --ip 10.0.0.5/24 --tcp worker -c 1000000";
    let bytes = |args: &str| {
        let args: Vec<&str> = args.split_whitespace().collect();
        connection_bytes(&flags::parse(&args).unwrap())
    };
    let tls = bytes(&format!("{most} -Z -o ssl_chain_cert=/cert")) - bytes(most);
    assert_eq!(tls, 1_000_000 * dataplane::stages::stream::TLS_CONNECTION_BYTES);
}

#[test]
fn authentication_turns_udp_off_and_the_binary_protocol() {
    let p = plan("-Y /auth").unwrap();
    assert!(p.ports.is_empty() && p.tcp.len() == 1);
    assert_eq!(p.clients.dialect, Dialects::Only(Dialect::Ascii));
    assert!(p.notes[0].contains("-Y turns UDP off"), "{:?}", p.notes);
    assert!(plan("-Y /auth -U 0").unwrap().notes.is_empty());
    let dialect = |args| plan(args).unwrap().clients.dialect;
    assert_eq!(dialect("-Y /auth -S"), Dialects::Auto);
    assert_eq!(dialect("-Y /auth -S -B binary"), Dialects::Only(Dialect::Binary));
    assert!(plan("-Y /auth -S").unwrap().ports.is_empty());
    assert!(plan("-Y /auth -s /kv").unwrap().notes.is_empty());
}

#[test]
fn what_changes_nothing_is_listed() {
    assert!(plan("-o idle_timeout=1,maxconns_fast").unwrap().unused.is_empty());
    let p = plan("-XWL -o modern,hashpower=20").unwrap();
    assert_eq!(p.unused, ["-L", "-o modern", "-o hashpower=20"]);
    let p = plan("--base-watts 60.5").unwrap();
    assert_eq!(
        (p.unused, p.base_watts),
        (vec!["--base-watts without --metrics".to_owned()], Some(60.5))
    );
    assert!(plan("--base-watts 60 --metrics 127.0.0.1:1").unwrap().unused.is_empty());
    let off = plan("--base-watts 60 --metrics 127.0.0.1:1 --energy off").unwrap();
    assert_eq!(
        (&off.unused[..], off.energy),
        (&["--base-watts with --energy off".to_owned()][..], Energy::Off)
    );
    assert_eq!(
        plan("--energy manage").unwrap().unused,
        ["--energy manage without a NIC in --port"]
    );
    for (flags, unused) in [
        ("-a 770", "-a without -s"),
        ("-s /kv -a 770", ""),
        ("-p 0 -t 8", "-t 8 without TCP in the kernel"),
        ("-s /kv -t 8", ""),
        ("--exception-rate 5", "--exception-rate without --side-door"),
    ] {
        assert_eq!(plan(flags).unwrap().unused.join(", "), unused, "{flags}");
    }
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
