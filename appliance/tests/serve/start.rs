//! What happens before anything is served: plans, messages, exit codes.

use crate::client::Tcp;
use crate::server::{Server, Tree, gnomon, output, refuses, run, run_to_end, text};
use serde_json::Value;
use std::ffi::OsStr;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::process::Stdio;

#[test]
fn dry_run_prints_the_plan_and_ends() {
    let args = ["-p", "-1", "-U", "-1", "-m", "8", "-t", "2", "--dry-run"];
    let out = run(&args);
    assert_eq!(out.status.code(), Some(0));
    let plan = text(&out.stdout);
    assert!(plan.contains("\nTCP           127.0.0.1:0; 2 threads, 1024 connections"), "{plan}");
    assert!(plan.contains("\nitems         8 MB, 1 MB each at most"), "{plan}");

    let out = run(&[&args[..], &["--json"]].concat());
    assert_eq!(out.status.code(), Some(0));
    let plan: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(plan["memory_bytes"], 8 << 20);
    assert_eq!(plan["tcp"][0]["address"], "127.0.0.1:0");
    assert_eq!(plan["policy"]["amp_factor"], 3);
    assert_eq!(plan["policy"]["trusted"][0], "127.0.0.0/8");
}

#[test]
fn a_dry_run_leaves_any_free_port_open() {
    let out = run(&["-p", "0", "-U", "-1", "--dry-run"]);
    assert!(text(&out.stdout).contains("any free UDP port"), "{}", text(&out.stdout));
}

#[test]
fn a_dry_run_touches_nothing() {
    let tree = Tree::empty("dry");
    let (left, metrics) = (tree.path("left"), tree.path("metrics"));
    drop(UnixListener::bind(&left).unwrap());
    let inode = std::fs::metadata(&left).unwrap().ino();
    let at = format!("unix:{metrics}");
    for args in [&["-s", &left][..], &["-p", "-1", "-U", "-1", "--metrics", &at]] {
        let out = run(&[args, &["-m", "8", "--dry-run"]].concat());
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    }
    assert_eq!(std::fs::metadata(&left).unwrap().ino(), inode);
    assert!(!std::path::Path::new(&metrics).exists());

    // What a start would stumble over it finds all the same.
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port().to_string();
    let said = format!("TCP 127.0.0.1:{port}: Address already in use");
    refuses(&run(&["-p", &port, "-U", "0", "--dry-run"]), &said);
    let _answers = UnixListener::bind(tree.path("live")).unwrap();
    let said = format!("the Unix socket {} is in use", tree.path("live"));
    refuses(&run(&["-s", &tree.path("live"), "--dry-run"]), &said);
    tree.write("file", "");
    let said = format!("-s: {} is no socket", tree.path("file"));
    refuses(&run(&["-s", &tree.path("file"), "--dry-run"]), &said);
    let none = tree.path("none/socket");
    let said = format!("cannot listen on the Unix socket {none}: ");
    refuses(&run(&["-s", &none, "--dry-run"]), &said);
}

#[test]
fn check_names_what_a_start_would_stumble_over() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port().to_string();
    let out = run(&["check", "-p", &port, "-U", "0"]);
    let said = format!("WARN  addresses   TCP 127.0.0.1:{port}: Address already in use");
    assert!(text(&out.stdout).contains(&said), "{}", text(&out.stdout));
    // The port may be this very appliance's.
    assert_eq!(out.status.code(), Some(0));
    for (flag, value, said) in [
        ("-Y", "/none/users", "FAIL  flags       cannot read"),
        ("-P", "/none/pid", "FAIL  flags       cannot write the pid file /none/pid: No such file"),
        ("-P", "/", "FAIL  flags       cannot write the pid file /: it is there, and is no file"),
        ("-s", "/none/socket", "FAIL  addresses   cannot listen on the Unix socket /none/socket"),
        ("-l", "192.0.2.1", "FAIL  addresses   TCP 192.0.2.1:"),
    ] {
        let out = run(&["check", "-p", &port, "-U", "0", flag, value]);
        assert!(text(&out.stdout).contains(said), "{}", text(&out.stdout));
        assert_eq!(out.status.code(), Some(1));
    }
}

#[test]
fn output_that_cannot_be_written_is_no_crash() {
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = gnomon();
    command.args(["-p", "0", "-U", "-1", "--dry-run"]).stdout(full()).stderr(Stdio::piped());
    let out = run_to_end(&mut command);
    refuses(&out, "standard output: ");
    let mut command = gnomon();
    command.args(["-p", "0", "-U", "0"]).stdout(Stdio::piped()).stderr(full());
    let out = run_to_end(&mut command);
    assert_eq!(out.status.code(), Some(1));
}

#[test]
fn a_port_file_that_cannot_be_written_is_named() {
    let mut command = gnomon();
    command.args(["-p", "-1", "-U", "0", "-m", "4"]).env("MEMCACHED_PORT_FILENAME", "/none/x");
    refuses(&output(&mut command), "cannot write MEMCACHED_PORT_FILENAME /none/x: ");
}

#[test]
fn version_and_help_go_to_standard_output() {
    let out = run(&["-V"]);
    assert!(text(&out.stdout).starts_with(concat!("gnomon ", env!("CARGO_PKG_VERSION"), " (")));
    assert_eq!(out.status.code(), Some(0));
    let out = run(&["-h"]);
    assert!(text(&out.stdout).contains("`gnomon serve --help`"));
    let out = run(&["serve", "-h"]);
    assert!(text(&out.stdout).contains("-p, --tcp-port <NUM>"));
    assert_eq!(out.status.code(), Some(0));
}

#[test]
fn a_flag_that_is_none_is_named() {
    let out = run(&["--prot", "net_null0"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("unexpected argument '--prot'"));
}

#[test]
fn a_plan_that_cannot_be_is_one_line() {
    refuses(&run(&["-p", "0", "-U", "0"]), "nothing to serve");
    refuses(&run(&["-p", "-1", "-U", "0", "-m", "999999999"]), "999999999 MB for items, ");
    refuses(&run(&["-p", "-1", "-U", "-1", "--engine", "gpu"]), "--engine gpu: ");
    refuses(&run(&["-p", "-1", "-S"]), "-S: SASL without a file of users");
    refuses(&run(&["-p", "-1", "-Y", "/none", "-U", "0"]), "cannot read the authentication file");
    refuses(&run(&["-p", "-1", "-Y", "/none", "-U", "1"]), "-Y: no client can authenticate");
    let users = Tree::new("broken", "users", "nobody\n");
    refuses(&run(&["-p", "-1", "-Y", &users.path("users")]), "the authentication file ");
    refuses(&run(&["-p", "-1", "-U", "-1", "--cores", "8191"]), "--cores: CPU 8191 is not among");
}

#[test]
fn a_port_in_use_is_one_line() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port().to_string();
    refuses(
        &run(&["-p", &port, "-U", "0"]),
        &format!("TCP 127.0.0.1:{port}: Address already in use"),
    );
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = udp.local_addr().unwrap().port().to_string();
    refuses(
        &run(&["-p", "0", "-U", &port]),
        &format!("UDP 127.0.0.1:{port}: Address already in use"),
    );
    // Another gnomon is no exception, however willing the kernel is to share.
    let server = Server::start(&["-m", "8"]);
    let (tcp, udp) = (server.tcp().port().to_string(), server.udp().port().to_string());
    refuses(&run(&["-p", &tcp, "-U", "0"]), "TCP 127.0.0.1:");
    refuses(&run(&["-p", "0", "-U", &udp]), "UDP 127.0.0.1:");
}

#[test]
fn the_environment_sets_flags_and_the_command_line_wins() {
    let plan = |args: &[&str]| -> Value {
        let mut command = gnomon();
        command.args(["-p", "-1", "-U", "-1", "--dry-run"]).args(args);
        let out = output(command.env("GNOMON_MEMORY", "32").env("GNOMON_JSON", "1"));
        serde_json::from_slice(&out.stdout).unwrap()
    };
    assert_eq!(plan(&[])["memory_bytes"], 32 << 20);
    assert_eq!(plan(&["-m", "16"])["memory_bytes"], 16 << 20);
}

/// Empty ones, and links that Kubernetes makes of a service's name.
#[test]
fn variables_that_are_no_flags_are_left_alone() {
    let mut command = gnomon();
    command.args(["-p", "-1", "-U", "-1", "-m", "8", "--dry-run"]);
    command.env("GNOMON_PORT", "tcp://10.96.0.1:11211").env("GNOMON_TCP_PORT", "tcp://10.96.0.1:1");
    command.env("GNOMON_UDP_PORT", "udp://10.96.0.1:1").env("GNOMON_METRICS", "");
    let out = output(&mut command);
    assert!(out.status.success(), "{}", text(&out.stderr));
    // One that is a flag and wrong is an error still.
    let out = output(gnomon().args(["--dry-run"]).env("GNOMON_TCP_PORT", "tcp"));
    assert_eq!(out.status.code(), Some(2));
    let said = text(&out.stderr);
    assert!(said.contains("'tcp' for 'GNOMON_TCP_PORT, of the environment'"), "{said}");
    let out = output(gnomon().args(["--dry-run", "-p", "tcp"]).env("GNOMON_TCP_PORT", "1"));
    let said = text(&out.stderr);
    assert!(said.contains("'tcp' for '--tcp-port <NUM>'"), "{said}");
    let bytes = OsStr::from_bytes(b"6\xff");
    let out = output(gnomon().args(["--dry-run"]).env("GNOMON_MEMORY", bytes));
    let said = text(&out.stderr);
    assert!(said.contains("GNOMON_MEMORY, of the environment, is not UTF-8"), "{said}");
}

/// A service manager waits for the process that it has started.
#[test]
fn nothing_goes_into_the_background_under_a_service_manager() {
    let path = std::env::temp_dir().join(format!("gnomon-notify-{}", std::process::id()));
    let manager = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let mut command = gnomon();
    command.args(["-d", "-p", "-1", "-U", "-1", "-m", "8"]).env("NOTIFY_SOCKET", &path);
    let server = Server::spawn(&mut command);
    Tcp::connect(server.tcp()).expect("get a\r\n", "END\r\n");
    let mut said = [0; 512];
    let len = manager.recv(&mut said).unwrap();
    assert!(said[..len].starts_with(b"READY=1"), "{said:?}");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn connections_are_as_many_as_files_may_be_open_where_no_flag_says() {
    let gnomon = env!("CARGO_BIN_EXE_gnomon");
    let plan = |flags: &str| {
        let run = format!("ulimit -n 1024; exec {gnomon} -p -1 -U 0 -m 8 {flags} --dry-run --json");
        output(std::process::Command::new("sh").args(["-c", &run]))
    };
    let out = plan("");
    let plan_of: Value = serde_json::from_slice(&out.stdout).unwrap();
    let most = plan_of["conn_limit"].as_u64().unwrap();
    assert!((800..1000).contains(&most), "{most}");
    assert_eq!(plan_of["open_files"], 1024);
    assert!(plan_of["notes"][0].as_str().unwrap().starts_with("at most "), "{plan_of}");
    refuses(&plan("-c 1025"), "-c 1025 needs ");
}

#[test]
fn the_port_file_names_the_ports_in_use() {
    let path = std::env::temp_dir().join(format!("gnomon-port-file-{}", std::process::id()));
    let mut command = gnomon();
    // -U -1 alone means any free port for TCP, too, as in memcached.
    command.args(["-U", "-1", "-m", "8"]).env("MEMCACHED_PORT_FILENAME", &path);
    let server = Server::spawn(&mut command);
    let said = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let (tcp, udp) = (server.tcp().port(), server.udp().port());
    assert_eq!(said, format!("TCP INET: {tcp}\nUDP INET: {udp}\n"));
    assert_ne!(tcp, 11211);
}

#[test]
fn options_without_effect_are_told_once_when_asked() {
    let args = ["-p", "-1", "-U", "0", "-m", "8", "-L", "-o", "modern,hashpower=20", "--dry-run"];
    let plan = text(&run(&args).stdout);
    let line = "\nno effect     -L, -o modern, -o hashpower=20\n";
    assert_eq!(plan.matches(line).count(), 1, "{plan}");
    assert!(!plan[..plan.find("no effect").unwrap()].contains("modern"));
    let out = run(&["-o", "modern,rubbish"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("'rubbish' is none of memcached's options"));
}

#[test]
fn the_limit_on_open_files_is_raised_as_far_as_it_must() {
    let mut command = std::process::Command::new("sh");
    let gnomon = env!("CARGO_BIN_EXE_gnomon");
    let run = format!("ulimit -Sn 64; exec {gnomon} -p -1 -U -1 -m 8 -t 1 -c 200 \"$@\"");
    command.args(["-c", &run, "gnomon"]);
    let server = Server::spawn(&mut command);
    let mut clients: Vec<Tcp> = (0..200).map(|_| Tcp::connect(server.tcp())).collect();
    for c in &mut clients {
        c.expect("get a\r\n", "END\r\n");
    }
}
