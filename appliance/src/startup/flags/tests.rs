use super::*;
use memcache::{Dialect, Dialects};
use std::path::Path;

#[test]
fn clap_finds_no_contradiction() {
    Cli::command().debug_assert();
}

#[test]
fn flags_alone_mean_serve() {
    for args in [&["-p", "1", "-m", "8"][..], &["serve", "-p", "1", "-m", "8"]] {
        let f = parse(args).unwrap();
        assert_eq!((f.tcp_port, f.memory), (Some(ServicePort::Fixed(1)), 8));
    }
    assert!(parse(&[]).is_ok());
    let version = parse(&["-V"]).unwrap_err().to_string();
    assert!(version.starts_with(concat!("gnomon ", env!("CARGO_PKG_VERSION"))), "{version}");
}

#[test]
fn memcached_letters_and_their_defaults() {
    let f = parse(&[]).unwrap();
    assert_eq!((f.tcp_port, f.udp_port), (None, None));
    assert_eq!(f.listening().count(), 0);
    assert_eq!((f.memory, f.threads, f.conn_limit), (64, 4, 1024));
    assert_eq!(f.max_item_size, 1 << 20);
    let f = parse(&["-U", "0", "-p", "-1", "-l", "::1,10.0.0.1:99", "-c", "5", "-I", "512k"]);
    let f = f.unwrap();
    assert_eq!((f.udp_port, f.tcp_port), (Some(ServicePort::Off), Some(ServicePort::Any)));
    let want: [ListenAddr; 2] = ["::1".parse().unwrap(), "10.0.0.1:99".parse().unwrap()];
    assert!(f.listening().eq(&want));
    assert_eq!((f.conn_limit, f.max_item_size), (5, 512 << 10));
    let f = parse(&["-Mvvt", "2", "-f", "2"]).unwrap();
    assert_eq!((f.disable_evictions, f.verbose, f.threads), (true, 2, 2));
    assert!((f.slab_growth_factor - 2.0).abs() < f64::EPSILON);
}

#[test]
fn letters_about_clients_and_the_process() {
    let f = parse(&[]).unwrap();
    let c = &f.clients;
    assert_eq!((c.listen_backlog, c.max_reqs_per_event, c.protocol), (1024, 20, Dialects::Auto));
    assert_eq!(c.unix_mask, FileMask(0o700));
    assert!(!(c.disable_cas || c.disable_flush_all || c.enable_shutdown || f.process.daemon));
    let f = parse(&[
        "-s",
        "/x",
        "-a",
        "0770",
        "-b",
        "5",
        "-R",
        "1",
        "-B",
        "ascii",
        "-Y",
        "auth",
        "-CFAXW",
        "-D",
        "|",
        "-o",
        "modern,idle_timeout=9",
        "-o",
        "track_sizes",
        "-n",
        "100",
        "-dkrL",
        "-P",
        "/pid",
        "-u",
        "nobody",
    ])
    .unwrap();
    let (c, p) = (&f.clients, &f.process);
    assert_eq!((c.unix_socket.as_deref(), c.unix_mask), (Some(Path::new("/x")), FileMask(0o770)));
    assert_eq!(
        (c.listen_backlog, c.max_reqs_per_event, c.protocol),
        (5, 1, Dialects::Only(Dialect::Ascii))
    );
    assert_eq!(c.auth_file.as_deref(), Some(Path::new("auth")));
    assert!(c.disable_cas && c.disable_flush_all && c.enable_shutdown);
    assert!(c.disable_dumping && c.disable_watch && c.prefix_delimiter == b'|');
    let options: Vec<_> = c.options().collect();
    assert_eq!((options.len(), options[1]), (3, &Extended::IdleTimeout(9)));
    assert!(p.daemon && p.lock_memory && p.enable_coredumps && p.enable_largepages);
    assert_eq!(
        (p.pidfile.as_deref(), p.user.as_deref()),
        (Some(Path::new("/pid")), Some("nobody"))
    );
    assert_eq!(f.slab_min_size, Some(100));
}

#[test]
fn long_names_are_memcacheds() {
    let f = parse(&[
        "--udp-port=1",
        "--unix-socket=/s",
        "--unix-mask=700",
        "--enable-shutdown",
        "--listen=::1",
        "--daemon",
        "--enable-coredumps",
        "--user=u",
        "--memory-limit=8",
        "--disable-evictions",
        "--conn-limit=2",
        "--lock-memory",
        "--verbose",
        "--pidfile=p",
        "--slab-growth-factor=2",
        "--slab-min-size=9",
        "--enable-largepages",
        "--threads=1",
        "--max-reqs-per-event=3",
        "--disable-cas",
        "--listen-backlog=4",
        "--protocol=ascii",
        "--max-item-size=2m",
        "--disable-flush-all",
        "--disable-dumping",
        "--disable-watch",
        "--auth-file=f",
        "--extended=modern",
        "--enable-sasl",
        "--enable-ssl",
    ]);
    assert_eq!(f.unwrap().memory, 8);
    assert_eq!(parse(&["--tcp-port=1", "--memory=9"]).unwrap().memory, 9);
}

#[test]
fn the_last_of_several_counts_except_for_lists() {
    let f = parse(&["-m", "8", "-l", "::1", "-m", "9", "-M", "-l", "::2", "-M"]).unwrap();
    assert_eq!((f.memory, f.listening().count(), f.disable_evictions), (9, 2, true));
}

#[test]
fn addresses_stand_between_commas_and_semicolons() {
    for (several, n) in [("::1;::2", 2), ("::1,", 1), (";::1,,::2", 2), ("[::1]:9;tag[a]:::2", 2)] {
        assert_eq!(parse(&["-l", several]).unwrap().listening().count(), n, "{several}");
    }
    for wrong in ["", ",", "::1,x y"] {
        assert!(parse(&["-l", wrong]).is_err(), "{wrong:?}");
    }
}

#[test]
fn values_are_understood() {
    let f = parse(&[
        "--port",
        "81:00.1,mprq_en=1",
        "--port",
        "net_tap0,iface=x",
        "--ip",
        "0=10.0.0.1/24",
        "--ip",
        "1=fd00::1/64",
        "--cores",
        "2-4,7,3",
        "--side-door",
        "tap=kv0",
        "--",
        "--no-telemetry",
    ])
    .unwrap();
    let pci =
        PortSpec::Pci { address: "0000:81:00.1".to_owned(), args: Some("mprq_en=1".to_owned()) };
    assert_eq!(f.port, [pci, PortSpec::Vdev("net_tap0,iface=x".to_owned())]);
    assert_eq!(f.port[1].device(), "net_tap0");
    assert_eq!(f.ip[1].port_index, Some(1));
    assert_eq!(f.ip[0].network.to_string(), "10.0.0.1/24");
    assert_eq!(f.cores, Some(CpuList(vec![2, 3, 4, 7])));
    assert_eq!(f.side_door, Some(ExceptionPathFlag::Tap(Some("kv0".to_owned()))));
    assert_eq!(f.eal, ["--no-telemetry"]);
}

#[test]
fn each_wrong_value_is_named_with_its_reason() {
    for (args, reason) in [
        (&["-p", "65536"][..], "not in -1 to 65535"),
        (&["-p", "-2"], "not in -1 to 65535"),
        (&["-U", "x"], "not a number from -1 to 65535"),
        (&["-l", "a b"], "neither an address nor a name that is found"),
        (&["-l", "127.0.0.1:x"], "'x' is not a port"),
        (&["-l", "fe80::1%eth0"], "an address with a scope (%) is not listened on"),
        (&["-l", "[fe80::1%1]:99"], "an address with a scope (%) is not listened on"),
        (&["-l", "proto[proxy]:127.0.0.1"], "proto[…] is ascii, binary or negotiating"),
        (&["-m", "64g"], "not a number of megabytes"),
        (&["-l", "1.2.3.4:0"], "port 0 cannot be listened on"),
        (&["-I", "1g"], "not a size in bytes"),
        (&["-I", "99999999999999999m"], "not a size in bytes"),
        (&["-t", "0"], "0 is not in 1..=256"),
        (&["-c", "0"], "0 is not in 1..=1000000"),
        (&["-R", "0"], "0 is not in 1.."),
        (&["-b", "x"], "invalid digit"),
        (&["-n", "0"], "0 is not in 1.."),
        (&["-B", "x"], "possible values: auto, ascii, binary"),
        (&["-a", "789"], "not an octal mask"),
        (&["-a", "7777"], "not an octal mask"),
        (&["-D", "ab"], "not one printable ASCII character"),
        (&["-D", ""], "not one printable ASCII character"),
        (&["-o", "modern,foo"], "'foo' is none of memcached's options"),
        (&["-q"], "unexpected argument '-q'"),
        (&["-m", "-1"], "unexpected argument '-1'"),
        (&["-f", "x"], "invalid float literal"),
        (&["--port", "eth0"], "neither a PCI address"),
        (&["--port", "11211"], "the TCP port is --tcp-port"),
        (&["--port", "0000:81:00.8"], "neither a PCI address"),
        (&["--port", "net_tap0/../x"], "neither a PCI address"),
        (&["--ip", "10.0.0.1"], "not ADDR/LEN"),
        (&["--ip", "10.0.0.1/33"], "longer than 32 bits"),
        (&["--ip", "::1/129"], "longer than 128 bits"),
        (&["--ip", "x=10.0.0.1/8"], "'x' is not the number of a port"),
        (&["--allow", "10.0.0.0/33"], "'33' is not a prefix of 10.0.0.0"),
        (&["--allow", "10.1.2.3/8"], "write 10.0.0.0/8 for all of it"),
        (&["--side-door", "vhost"], "neither tap, tap=NAME nor none"),
        (&["--side-door", "tap=a/b"], "1 to 15 printable characters"),
        (&["--side-door", "tap=0123456789abcdef"], "1 to 15 printable characters"),
        (&["--cores", "3-1"], "'3-1' is neither a CPU nor a range"),
        (&["--cores", "0-99999999"], "neither a CPU nor a range"),
        (&["--batch", "0"], "0 is not in 1..=65536"),
        (&["--slab-pages", ""], "not SIZE:PAGES with commas between (64:2,128:8)"),
        (&["--slab-pages", "64"], "not SIZE:PAGES"),
        (&["--slab-pages", "64:2,"], "not SIZE:PAGES"),
        (&["--slab-pages", "64:x"], "not SIZE:PAGES"),
        (&["--slab-pages", "64:-1"], "not SIZE:PAGES"),
        (&["--slab-pages", "64:99999999999"], "not SIZE:PAGES"),
        (&["--slab-pages", "64:0"], "64: a class has one page at least"),
        (&["--slab-pages", "32:1"], "32: a chunk has a multiple of 64 bytes, up to 2097152"),
        (&["--slab-pages", "4m:1"], "4194304: a chunk has a multiple of 64 bytes"),
        (&["--slab-pages", "128:1,64:1"], "64 behind 128: sizes rise, and each stands once"),
        (&["--slab-pages", "64:1,64:1"], "64 behind 64: sizes rise"),
        (&["--slab-pages", "64:1", "-f", "2"], "cannot be used with"),
        (&["--slab-pages", "64:1", "-n", "2"], "cannot be used with"),
        (&["--evict", "lru"], "possible values: clock, round-robin"),
        (&["--evict", "clock", "-M"], "cannot be used with"),
        (&["--profile", "fpga", "-M"], "cannot be used with"),
        (&["--profile", "fpga", "-n", "9"], "cannot be used with"),
        (&["--profile", "asic"], "possible values: fpga"),
        (&["--engine", "fpga"], "possible values: auto, cpu, gpu, simt"),
        (&["--numa-node", "first"], "neither auto, off, split nor a number"),
        (&["--huge", "maybe"], "possible values: auto, on, off"),
        (&["--batch-mode", "x"], "possible values: adaptive, fixed, periodic"),
        (&["bind"], "required arguments were not provided"),
        (&["unbind", "eth0"], "not a PCI address"),
        (&["fly"], "unrecognized subcommand 'fly'"),
    ] {
        let said = parse(args).expect_err(&format!("{args:?}")).to_string();
        assert!(said.contains(reason), "{args:?}: {said}");
    }
}
