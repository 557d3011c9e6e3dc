//! Plans of memory, and of CPUs beside it.

use super::*;
use crate::host::machine::{FileFault, FileRoom, FileSystem};
use crate::startup::plan::resources::INDEX_SHARE;
use std::path::Path;

#[test]
fn workers_and_memory_are_on_the_nics_node() {
    let (near, far, both) = ("81:00.0", "82:00.0", "81:00.0 --port 82:00.0 --ip 1=10.0.1.1/24");
    let (_tree, m) = on_two_nodes("numa", &[]);
    let on =
        |port: &str, more: &str| plan_on(&m, &format!("--port {port} --ip 0=10.0.0.1/24 {more}"));
    let got = |port: &str, more: &str| {
        let p = on(port, more).unwrap();
        (p.parts[0].node(), p.worker_cpus(), p.control_cpu)
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
    let note = &on(both, "").unwrap().notes[0];
    assert!(note.contains("on NUMA nodes 0 and 1") && note.contains("--numa-node split"), "{note}");
    // Too little of it.
    let notes = |m: &str| on(near, m).unwrap().notes;
    assert!(notes("-m 1000")[0].contains("NUMA node 1 has 100 MB free of 1"), "{:?}", notes(""));
    assert!(notes("-m 8 -c 10").is_empty(), "{:?}", notes("-m 8 -c 10"));
    let none = on(near, "--numa-node 2").unwrap_err().to_string();
    assert!(none.contains("--numa-node 2: there is no such node here; choose of 0, 1"), "{none}");
    // Only CPUs of the other node are allowed.
    let m = Machine { cpus: vec![2, 3], ..m };
    let p = plan_on(&m, "--port 81:00.0 --ip 10.0.0.1/24").unwrap();
    let numa = p.parts[0].numa.clone().unwrap();
    assert_eq!((numa.node, numa.cpus, p.worker_cpus()), (1, vec![], vec![3]));
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
         lower -m, --slab-pages or --slots, or free memory"
    );
    let huge = Machine { huge_free_bytes: 100 << 20, ..small.clone() };
    assert!(plan_on(&huge, "-U 0").is_ok());
    // Items that huge pages do not hold as a whole are in ordinary ones.
    let some_huge = Machine { huge_free_bytes: 40 << 20, ..small.clone() };
    let said = plan_on(&some_huge, "-U 0").unwrap_err().to_string();
    assert!(said.contains("50 MB available, huge pages apart (40 MB"), "{said}");
    assert!(
        plan_on(&some_huge, "-U 0 -m 48").is_ok(),
        "48 in ordinary pages, the rest in huge ones"
    );
    assert!(plan_on(&huge, "-U 0 --huge off").is_err());
    assert_eq!(plan_on(&huge, "-U 0 --huge on").unwrap().huge, Pages::Require);
    let said = plan_on(&small, "-U 0 --huge on").unwrap_err().to_string();
    assert!(said.contains("needs 37 huge pages of 2 MB and 0 are free"), "{said}");
    let unknown = Machine { memory_available_bytes: None, ..small };
    assert!(plan_on(&unknown, "").is_ok());
}

#[test]
fn what_will_not_hold_all_that_may_be_used_is_said() {
    let of = |mb: u64| Machine { memory_available_bytes: Some(mb << 20), ..Machine::pretend() };
    let notes = |mb, args: &str| plan_on(&of(mb), args).unwrap().notes.join("; ");
    // 700 and 100 for the index, what connections may have, and 30.
    assert_eq!(notes(930, "-m 700 -U 0 --conn-memory 100m"), "");
    assert_eq!(
        notes(929, "-m 700 -U 0 --conn-memory 100m"),
        "up to 930 MB will be used and 929 MB are available: the kernel ends the process when they run \
         out; lower -m, -c or --conn-memory"
    );
    let huge = Machine { huge_free_bytes: 900 << 20, ..of(130) };
    assert!(plan_on(&huge, "-m 700 -U 0 --conn-memory 100m").unwrap().notes.is_empty());
}

#[test]
fn what_is_needed_counts_what_dpdk_takes() {
    let needed = |args: &str| {
        let args: Vec<&str> = args.split_whitespace().collect();
        let flags = flags::parse(&args).unwrap();
        needed_bytes(&flags, &understood(&flags, &Machine::pretend())).iter().sum::<u64>() >> 20
    };
    let items_and_packets = 64 + 64 / 7 + 8;
    assert_eq!(needed("-m 64 --cores 1"), items_and_packets);
    let own = if cfg!(feature = "dpdk") { 48 + 4096 / 2048 } else { 0 };
    let port = "-m 64 --port net_ring0 --ip 10.0.0.1/24 --cores 1";
    assert_eq!(needed(port), items_and_packets + own);
    let connections = |args: &str| {
        let args: Vec<&str> = args.split_whitespace().collect();
        connection_bytes(&flags::parse(&args).unwrap())
    };
    assert_eq!(connections(&format!("{port} --tcp kernel")), 0);
    // 1,024 of 34 KB.
    assert_eq!(connections(port) >> 20, 34);
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
    assert_eq!((p.worker_cpus(), p.control_cpu, p.tcp_cpus), (vec![3], 3, vec![3]));
    assert!(p.notes[0].contains("CPU 3 serves packets and everything else"));
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
    let error = plan("-e /dev/shm/items -P /dev/shm/items").unwrap_err().to_string();
    assert_eq!(error, "-e and -P are both /dev/shm/items: give the pid file another name");
    assert!(plan("-e /tmp/items -P /tmp/../tmp/items").is_err());
    for (flag, more) in [
        ("-Y", ""),
        ("--config", ""),
        ("-o ssl_chain_cert", "-Z "),
        ("-o ssl_key", "-Z -o ssl_chain_cert=/c "),
        ("-o ssl_ca_cert", "-Z -o ssl_chain_cert=/c "),
    ] {
        let between = if flag.starts_with("-o") { "=" } else { " " };
        let error = plan(&format!("{more}{flag}{between}/f -P /f")).unwrap_err().to_string();
        assert_eq!(error, format!("{flag} and -P are both /f: give the pid file another name"));
    }
    assert!(plan("-e /tmp/items -P /tmp/pid").is_ok());
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
    // What pages of classes take, whatever -m says.
    let little = Machine { memory_available_bytes: Some(MB), ..most.clone() };
    let error = plan_on(&little, "-m 4000 --slab-pages 64:20").unwrap_err().to_string();
    assert!(error.starts_with("40 MB for items, "), "{error}");
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
fn less_memory_than_can_be_used_is_rounded_up_and_noted() {
    for mb in 1..4 {
        let p = plan(&format!("-m {mb}")).unwrap();
        assert_eq!(p.memory_bytes, 4 << 20);
        assert!(p.notes[0].starts_with(&format!("-m {mb}: items have 4 MB")), "{:?}", p.notes);
    }
    assert!(plan("-m 4").unwrap().notes.is_empty());
}
