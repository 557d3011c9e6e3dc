//! The shipped systemd unit, as far as it can be kept to without systemd: what it lets root do is enough.

use crate::process::status;
use crate::server::{Server, Tree, gnomon, output};
use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

/// All that the unit says about `key`, a line each.
fn unit(key: &str) -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/appliance/systemd/gnomon.service");
    let text = fs::read_to_string(path).unwrap();
    let of_key = text.lines().filter_map(|l| l.strip_prefix(key)?.strip_prefix('='));
    of_key.map(str::to_owned).collect()
}

/// `program` with the unit's capabilities to be had and no others, or none where that cannot be.
fn bounded(program: &str) -> Option<Command> {
    let [bound] = &unit("CapabilityBoundingSet")[..] else { panic!("one line, which has all") };
    let names = bound.split_whitespace().map(|name| name.strip_prefix("CAP_").unwrap());
    let set: String = names.map(|name| format!(",+{}", name.to_lowercase())).collect();
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", &format!("-all{set}")]);
    let can = Command::new("setpriv").args(["--bounding-set", "-all", "true"]).output();
    if !geteuid().is_root() || !can.is_ok_and(|out| out.status.success()) {
        println!("skipped: needs root and setpriv");
        return None;
    }
    for (name, _) in gnomon().get_envs() {
        command.env_remove(name);
    }
    command.arg(program);
    Some(command)
}

#[test]
fn what_the_unit_leaves_root_is_enough_to_become_a_user_again_and_again() {
    let dir = Tree::empty("unit");
    // As /run/gnomon is: root's, so that who became another user cannot take his sockets away.
    fs::set_permissions(dir.path(""), PermissionsExt::from_mode(0o755)).unwrap();
    let (metrics, socket, memory) = (dir.path("metrics.sock"), dir.path("sock"), dir.path("items"));
    let said = format!("unix:{metrics}");
    let args = ["-U", "0", "-m", "8", "-u", "nobody", "--metrics", &said];
    let args = [&args[..], &["-s", &socket, "-e", &memory]].concat();
    for left_over in [false, true] {
        assert_eq!(Path::new(&metrics).exists(), left_over);
        assert_eq!(Path::new(&socket).exists(), left_over);
        let Some(mut command) = bounded(env!("CARGO_BIN_EXE_gnomon")) else { return };
        let server = Server::spawn(command.arg("serve").args(&args));
        for task in fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap() {
            let task = task.unwrap().path();
            for kind in ["CapPrm", "CapEff", "CapInh", "CapAmb"] {
                assert_eq!(status(&task, kind), "0000000000000000", "{kind}");
            }
            assert_ne!(status(&task, "Uid").split(' ').next(), Some("0"));
        }
        UnixStream::connect(&metrics).unwrap();
        UnixStream::connect(&socket).unwrap();
        reload(&server);
        server.wait_for_log("there is no file to read again");
        server.stop_by(Signal::SIGTERM);
    }
}

/// What the unit does at `systemctl reload`. A `+` has systemd leave its restrictions out.
fn reload(server: &Server) {
    let [line] = &unit("ExecReload")[..] else { panic!("one line") };
    let (full, line) = line.strip_prefix('+').map_or((false, &line[..]), |rest| (true, rest));
    let line = line.replace("$MAINPID", &server.pid().to_string());
    // A shell takes the line apart as systemd does, as far as quotes go.
    let mut command = if full { Command::new("/bin/sh") } else { bounded("/bin/sh").unwrap() };
    assert!(command.args(["-c", &line]).status().unwrap().success(), "{line}");
}

#[test]
fn a_right_that_is_missing_is_named() {
    let dir = Tree::empty("unit-less");
    let socket = dir.path("sock");
    let bound = "-all,+setuid,+setgid";
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", bound, env!("CARGO_BIN_EXE_gnomon")]);
    if bounded("true").is_none() {
        return;
    }
    let args = ["serve", "-p", "0", "-U", "0", "-m", "8", "-u", "nobody", "-s", &socket];
    let out = output(command.args(args));
    let said = String::from_utf8(out.stderr).unwrap();
    let expected = format!("gnomon: -u nobody: cannot give {socket} to this user: EPERM");
    assert!(said.starts_with(&expected) && said.contains("CAP_CHOWN"), "{said}");
}

#[test]
fn the_devices_that_ports_and_gpus_need_are_allowed() {
    assert_eq!(unit("DevicePolicy"), ["closed"]);
    let allowed = unit("DeviceAllow");
    // By the names of /proc/devices: VFIO's groups, the verbs of mlx5 and mlx4, GPUs.
    for device in [
        "/dev/vfio/vfio",
        "char-vfio",
        "char-infiniband_verbs",
        "/dev/net/tun",
        "char-nvidia",
        "char-nvidia-frontend",
        "char-nvidia-uvm",
    ] {
        assert!(allowed.contains(&format!("{device} rw")), "{device}: {allowed:?}");
    }
}
