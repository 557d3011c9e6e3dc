//! Start-up options of memcached: each that the installed one's `--help` names starts, or is
//! refused as docs/protocol.md says.

use crate::server::{Server, Tree, gnomon, refuses, run, text};
use std::process::{Command, Output};

/// Command lines with each option of memcached 1.6.45.
const NEWEST: &str = include_str!("memcached_options.txt");
const PAGE: &str = include_str!("../../../docs/protocol.md");

fn dry(args: &[&str]) -> Output {
    run(&[&["-p", "-1", "-U", "-1", "--dry-run"], args].concat())
}

fn starts(args: &[&str]) {
    let out = dry(args);
    assert_eq!(out.status.code(), Some(0), "{args:?}: {}", text(&out.stderr));
}

/// Names in the first column of the table of what is refused at the start.
fn refused() -> Vec<&'static str> {
    let table = PAGE.split("| refused at the start |").nth(1).expect("the table");
    let table = table.split("\n\n").next().unwrap();
    let first = table.lines().filter_map(|row| row.split('|').nth(1));
    first.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

/// Options that name files in which a certificate and its key are.
fn certificates(tree: &Tree) -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let made = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    tree.write("cert", &made.self_signed(&key).unwrap().pem());
    tree.write("key", &key.serialize_pem());
    let (cert, key) = (tree.path("cert"), tree.path("key"));
    format!("ssl_chain_cert={cert},ssl_key={key},ssl_ca_cert={cert}")
}

#[test]
fn each_option_of_the_installed_memcached_starts_or_is_refused_as_documented() {
    let Ok(help) = Command::new("memcached").arg("--help").output() else {
        println!("no memcached is installed");
        return;
    };
    let help = text(&help.stdout);
    let tree = Tree::new("compat", "users", "user:password\n");
    let (users, items, pid) = (tree.path("users"), tree.path("items"), tree.path("pid"));
    let refused = refused();
    assert!(refused.contains(&"-S") && refused.contains(&"ext_*"), "{refused:?}");
    let certificates = certificates(&tree);
    let (mut flags, mut options) = (0, 0);
    for line in help.lines() {
        if let Some(option) = line.trim_start().strip_prefix("- ") {
            let Some((name, _)) = option.split_once(':').filter(|(n, _)| !n.contains(' ')) else {
                continue;
            };
            options += 1;
            let typed = match name {
                "hash_algorithm" => "hash_algorithm=xxh3".to_owned(),
                "hashpower" | "slab_chunk_max" => format!("{name}=16"),
                "ssl_verify_mode" | "ssl_min_version" | "ssl_keyformat" => format!("{name}=2"),
                "ssl_chain_cert" | "ssl_key" | "ssl_ca_cert" | "ssl_ciphers" => {
                    format!("{name}=x")
                }
                "hot_max_factor" | "warm_max_factor" | "slab_automove_freeratio" => {
                    format!("{name}=0.5")
                }
                _ if ["_size", "_limit", "_ttl", "_time", "_sleep", "_tocrawl", "_pct", "_id"]
                    .iter()
                    .any(|end| name.ends_with(end))
                    || name == "idle_timeout" =>
                {
                    format!("{name}={}", if name.ends_with("_pct") { 30 } else { 64 })
                }
                _ => name.to_owned(),
            };
            let family = format!("{}_*", name.split('_').next().unwrap());
            if refused.contains(&&*family) {
                let out = dry(&["-o", &typed]);
                assert_eq!(out.status.code(), Some(2), "{typed}");
                assert!(text(&out.stderr).contains("is not supported"), "{typed}");
            } else {
                starts(&["-o", &typed]);
            }
            continue;
        }
        let Some(letter) = line.strip_prefix('-').and_then(|l| l.chars().next()) else { continue };
        let short = format!("-{letter}");
        let value = match letter {
            'p' | 'U' => Some("0"),
            's' => Some("/tmp/none.sock"),
            'a' => Some("700"),
            'l' => Some("localhost"),
            'u' => Some("root"),
            'm' => Some("64"),
            'c' | 't' | 'R' | 'b' | 'n' | 'N' => Some("4"),
            'P' => Some(&*pid),
            'f' => Some("1.5"),
            'D' => Some(":"),
            'B' => Some("ascii"),
            'I' => Some("512k"),
            'Y' => Some(&*users),
            'e' => Some(&*items),
            'o' => Some("modern"),
            _ => None,
        };
        flags += 1;
        let mut args = vec![&*short];
        args.extend(value);
        if letter == 'Y' {
            args.extend(["-U", "0"]);
        }
        if letter == 'Z' {
            args.extend(["-o", &certificates]);
        }
        if refused.contains(&&*short) {
            let out = dry(&args);
            assert_eq!(out.status.code(), Some(1), "{args:?}");
            refuses(&out, &format!("{short}: "));
            continue;
        }
        starts(&args);
        // The long name, but for the one that names a NIC here.
        let long = line.split(", --").nth(1).and_then(|l| l.split(['=', ' ']).next());
        if let Some(long) = long.filter(|long| *long != "port") {
            let long = format!("--{}", long.replace('_', "-"));
            starts(&[&[&*long], &args[1..]].concat());
        }
    }
    assert!(flags > 30 && options > 30, "{flags} flags and {options} options");
}

#[test]
fn each_option_of_the_newest_memcached_starts_or_is_refused_as_documented() {
    let tree = Tree::new("newest", "users", "user:password\n");
    let (refused, certificates) = (refused(), certificates(&tree));
    let (mut started, mut not) = (0, 0);
    let lines = NEWEST.lines().filter(|l| !l.is_empty() && !l.starts_with('#'));
    for line in lines {
        let line = line.replace("DIRECTORY/", &tree.path(""));
        let mut args: Vec<&str> = line.split(' ').collect();
        if ["-Z", "--enable-ssl", "btls:", "mtls:"].iter().any(|name| line.contains(name)) {
            args.extend(["-Z", "-o", &certificates]);
        }
        // A letter, an option of -o, or what stands before an address.
        let is_refused = refused.iter().any(|name| match name.strip_suffix('*') {
            Some(family) => args.get(1).is_some_and(|option| option.starts_with(family)),
            None if name.ends_with(':') => args.get(1).is_some_and(|a| a.starts_with(name)),
            None => args[0] == *name,
        });
        if is_refused {
            let out = dry(&args);
            assert!(!out.status.success(), "{line}");
            assert!(text(&out.stderr).contains("not supported"), "{line}: {}", text(&out.stderr));
            not += 1;
        } else {
            starts(&args);
            started += 1;
        }
    }
    assert!(started > 100 && not > 8, "{started} started and {not} were refused");
}

#[test]
fn a_growth_factor_beyond_what_there_is_starts_and_says_so() {
    for (factor, used) in [("1.01", "1.05"), ("1000", "100")] {
        let plan = text(&dry(&["-f", factor]).stdout);
        let note = format!("-f {factor}: sizes grow by a factor of {used} here\n");
        assert!(plan.contains(&note) && plan.contains(&format!("growth factor {used},")), "{plan}");
    }
}

#[test]
fn ways_to_write_options_that_memcached_takes() {
    for option in [
        "slab_reassign,slab_automove",
        "no_slab_automove",
        "slab_sizes=100-200-300",
        "modern,",
        "",
        "resp_obj_mem_limit",
        "slab_automove_ratio=1",
        "slab_automove_freeratio=1",
        "relaxed_privileges",
        "drop_privileges",
        "sock_cookie_id=1",
        "hot_lru_pct=50,warm_lru_pct=20",
        "slab_chunk_max=512",
    ] {
        starts(&["-o", option]);
    }
    for memory in ["64m", "64M", "64mb", "64 "] {
        let out = dry(&["-m", memory]);
        assert!(text(&out.stdout).contains("64 MB"), "{memory}: {}", text(&out.stdout));
    }
    refuses(&dry(&["-o", "hot_lru_pct=50"]), "-o hot_lru_pct, warm_lru_pct: 90% together");
    refuses(&dry(&["-o", "slab_chunk_max=50"]), "-o slab_chunk_max=50: -I 1048576 is no multiple");
    refuses(&dry(&["-o", "hashpower=12"]), "-o hashpower=12: with -t 4 memcached wants more");
    starts(&["-t", "2", "-o", "hashpower=12"]);
    assert_eq!(dry(&["-o", "worker_logbuf_size=1"]).status.code(), Some(2));
    for commas in [",", ",modern", "modern,,slab_reassign"] {
        let out = dry(&["-o", commas]);
        assert_eq!(out.status.code(), Some(2), "{commas}");
        assert!(text(&out.stderr).contains("a comma has no option before it"), "{commas}");
    }
    let license = run(&["-i"]);
    assert!(text(&license.stdout).contains("WITHOUT WARRANTY OF ANY KIND"));
    assert_eq!(license.status.code(), Some(0));
}

#[test]
fn what_has_no_effect_is_said_at_the_start() {
    let mut command = gnomon();
    command.args([
        "-p",
        "-1",
        "-U",
        "0",
        "-m",
        "8",
        "-N",
        "2",
        "-o",
        "hashpower=20,read_buf_mem_limit=8",
    ]);
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut from = std::io::BufReader::new(child.stderr.take().unwrap());
    std::io::BufRead::read_line(&mut from, &mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let said = "gnomon: no effect here: -N 2, -o hashpower=20, -o read_buf_mem_limit=8\n";
    assert_eq!(line, said);
}

#[test]
fn a_name_is_listened_on() {
    for listen in ["localhost", "proto[negotiating]:tag[x]:localhost", "tag_x_:localhost", "*"] {
        let server = Server::start(&["-m", "8", "-l", listen]);
        let tcp: Vec<std::net::SocketAddr> = server.ready["tcp"]
            .as_array()
            .unwrap()
            .iter()
            .map(|a| a.as_str().unwrap().parse().unwrap())
            .collect();
        let port = tcp.iter().find(|a| a.is_ipv4()).expect("an IPv4 address").port();
        let mut c = crate::client::Tcp::connect(([127, 0, 0, 1], port).into());
        c.expect("get a\r\n", "END\r\n");
    }
    // What an address speaks, all of them speak.
    let server = Server::start(&["-m", "8", "-l", "proto[ascii]:127.0.0.1"]);
    let mut c = crate::client::Tcp::connect(server.tcp());
    c.send([0x80, 10].iter().chain(&[0; 22]).copied().collect::<Vec<u8>>());
    assert!(c.rest().is_empty());
    let both = dry(&["-l", "proto[ascii]:127.0.0.1,127.0.0.2"]);
    refuses(&both, "-l proto[…]: all addresses speak the same here");
    let out = dry(&["-l", "no-such-host.invalid"]);
    assert!(text(&out.stderr).contains("neither an address nor a name that is found"));
}

#[test]
fn debians_file_of_flags_starts() {
    let tree = Tree::new(
        "debian",
        "memcached.conf",
        "# memcached default config file\n-d\n\nlogfile /var/log/memcached.log\n\n# -v\n-m 64\n-p 11211\n\
         -u root\n-l 127.0.0.1\n# -c 1024\n-P /var/run/memcached/memcached.pid\n",
    );
    let file = tree.path("memcached.conf");
    let out = run(&["--config", &file, "-p", "-1", "-U", "-1", "--dry-run"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(text(&out.stderr).starts_with(&format!("gnomon: {file}:4: logfile has no effect: ")));
}
