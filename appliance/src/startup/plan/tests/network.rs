//! Plans of sockets and ports.

use super::*;
use crate::host::check::Wants;
use crate::host::machine::tests::Tree;

#[test]
fn tcp_on_a_port_is_the_workers_unless_said_otherwise() {
    let args = "--port net_tap0 --ip 10.0.0.5/24 --ip fd00::5/64 -p 5000";
    let kernel = planned(&format!("{args} --tcp kernel"));
    assert!(kernel.tcp.iter().any(|t| t.behind_exception_path));
    assert_eq!((kernel.ports[0].tcp_port, kernel.exception_rate.get()), (None, 10_000));
    let worker = planned(&format!("{args} --exception-rate 77"));
    assert!(!worker.tcp.iter().any(|t| t.behind_exception_path));
    assert_eq!((worker.ports[0].tcp_port, worker.exception_rate.get()), (Some(5000), 77));
    let at: Vec<_> = worker.worker_tcp().map(|a| a.to_string()).collect();
    assert_eq!(at, ["10.0.0.5:5000", "[fd00::5]:5000"]);
    assert_eq!(plan("--tcp worker").unwrap_err(), PlanError::TcpWithoutPort);
    // Who must authenticate is served over TCP alone.
    let alone = |with: &str| {
        let p = plan(&format!("--port net_ring0 --ip 10.0.0.5/24 {with}")).unwrap();
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
    assert_eq!((p.worker_cpus(), p.control_cpu), (vec![2], 0));
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
    assert!(p.ports.is_empty() && p.worker_cpus().is_empty());
    assert_eq!(p.tcp[0].address.port(), 0);
    assert_eq!(p.slots(), 0);
}

#[test]
fn dpdk_ports_get_their_addresses_subnets_and_a_exception_path() {
    let p = plan("--port net_tap0,iface=a --ip 10.0.0.1/24 --ip fd00::1/64 --tcp kernel").unwrap();
    assert_eq!(p.ports[0].addresses, [net("10.0.0.1/24"), net("fd00::1/64")]);
    assert_eq!(p.allow[2..], [cidr("10.0.0.0/24"), cidr("fd00::/64")]);
    assert!(p.tcp_from_all);
    assert_eq!(p.ports[0].exception_path.as_deref(), Some("gnomon0"));
    assert_eq!(p.worker_cpus(), [1, 2, 3, 4, 5, 6, 7]);
    let tcp: Vec<_> =
        p.tcp.iter().map(|t| (t.address.to_string(), t.behind_exception_path)).collect();
    let expected =
        [("127.0.0.1:11211", false), ("10.0.0.1:11211", true), ("[fd00::1]:11211", true)];
    assert_eq!(tcp, expected.map(|(a, b)| (a.to_owned(), b)));
    let p = plan("--port net_tap0 --ip 10.0.0.1/24 -l 0.0.0.0").unwrap();
    assert_eq!(p.tcp.len(), 1);
    let p = plan("--port net_tap0 --ip 10.0.0.1/24 --side-door none --allow 10.1.0.0/16").unwrap();
    assert_eq!((p.ports[0].exception_path.as_ref(), p.tcp.len()), (None, 1));
    assert_eq!((&p.allow[..], p.tcp_from_all), (&[cidr("10.1.0.0/16")][..], false));
}

#[test]
fn a_packet_socket_beside_an_exception_path_is_seen_twice() {
    let twice = |args: &str| {
        let args: Vec<_> = args.split(' ').collect();
        Wants::new(&flags::parse(&args).unwrap(), &Machine::pretend()).seen_twice
    };
    let port = "--ip 10.0.0.1/24 --port net_af_packet0,iface=wire0,qpairs=2";
    assert_eq!(twice(port), ["wire0"]);
    assert!(twice(&format!("{port} --side-door none")).is_empty());
    assert!(twice("--ip 10.0.0.1/24 --port net_tap0,iface=wire0").is_empty());
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
fn a_unix_socket_takes_the_place_of_the_network() {
    let p = plan("-s /run/kv -a 770 -p 1 -U 1").unwrap();
    assert!(p.tcp.is_empty() && p.ports.is_empty() && p.worker_cpus().is_empty());
    let unix = p.clients.unix.unwrap();
    assert_eq!((unix.path.to_str(), unix.mask.0), (Some("/run/kv"), 0o770));
    let here = plan("-s kv -P pid -Y auth").unwrap();
    assert!(here.clients.unix.unwrap().path.is_absolute());
    assert!(here.clients.auth_file.unwrap().is_absolute());
    assert!(here.process.pid_file.unwrap().is_absolute());
    let long = "a".repeat(108);
    for (flag, value) in [("-s", long.clone()), ("--metrics", format!("unix:{long}"))] {
        let said = plan(&format!("{flag} {value}")).unwrap_err().to_string();
        assert!(said.starts_with(flag) && said.contains("at most 107 bytes"), "{said}");
    }
}

#[test]
fn a_pid_file_takes_no_name_on_the_way_to_another_file() {
    let dir = std::env::temp_dir().join(format!("gnomon-pid-file-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    for (name, target) in [("users", "mid"), ("mid", "real"), ("loop", "loop")] {
        std::os::unix::fs::symlink(target, dir.join(name)).unwrap();
    }
    std::fs::write(dir.join("real"), "a:b\n").unwrap();
    let said = |users: &str, pid: &str| {
        let [users, pid] = [users, pid].map(|name| dir.join(name).display().to_string());
        plan(&format!("-s kv -Y {users} -P {pid}")).map_err(|e| e.to_string())
    };
    for pid in ["users", "mid", "real"] {
        let refused = said("users", pid).unwrap_err();
        assert!(refused.contains("-Y and -P are both "), "{refused}");
    }
    for (users, pid) in [("users", "pid"), ("loop", "pid"), ("real", "mid")] {
        assert!(said(users, pid).is_ok(), "{users} {pid}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
