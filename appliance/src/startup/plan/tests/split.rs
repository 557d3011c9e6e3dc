//! Plans that are divided over NUMA nodes.

use super::*;
use crate::host::check::Wants;
use crate::host::machine::Gpu;
use crate::host::machine::tests::Tree;

/// [`on_two_nodes`], and node 2, which is memory alone.
fn two_nodes(name: &str) -> (Tree, Machine) {
    on_two_nodes(name, &[("devices/system/node/node2/cpulist", "\n")])
}

/// The flags of these ports, each with an address of its own.
fn flags_of(ports: &[&str], more: &str) -> String {
    let port = |(n, port): (usize, &&str)| format!("--port {port} --ip {n}=10.0.{n}.1/24 ");
    let ports: String = ports.iter().enumerate().map(port).collect();
    format!("--numa-node split {ports}{more}")
}

/// Node, ports and workers' CPUs of each part.
type Parts = Vec<(u32, Vec<usize>, Vec<usize>)>;

fn parts(p: &Plan) -> Parts {
    let of = |part: &PartPlan| (part.node().unwrap(), part.ports.clone(), part.worker_cpus.clone());
    p.parts.iter().map(of).collect()
}

#[test]
fn each_node_serves_its_own_ports() {
    let (_t, m) = two_nodes("split");
    let got = |ports: &[&str], more: &str| parts(&plan_on(&m, &flags_of(ports, more)).unwrap());
    let (near, far) = (vec![1, 2, 3], vec![4, 5, 6, 7]);
    let (near, far) = (|| near.clone(), || far.clone());
    let both = ["81:00.0", "82:00.0"];
    assert_eq!(got(&both, ""), [(0, vec![1], near()), (1, vec![0], far())]);
    // Ports without a node go where the fewest are, and no node without CPUs has any.
    assert_eq!(got(&["net_null0", "net_null1"], ""), [(0, vec![0], near()), (1, vec![1], far())]);
    assert_eq!(got(&["net_null0", "81:00.0"], ""), [(0, vec![0], near()), (1, vec![1], far())]);
    let four = ["83:00.0", "81:00.0", "net_null0", "net_null1"];
    assert_eq!(got(&four, ""), [(0, vec![0, 2], near()), (1, vec![1, 3], far())]);
    let near_both = ["82:00.0", "net_null0", "net_null1"];
    assert_eq!(got(&near_both, ""), [(0, vec![0, 2], near()), (1, vec![1], far())]);
    // CPUs that were chosen are divided.
    assert_eq!(got(&both, "--cores 6,2,4"), [(0, vec![1], vec![2]), (1, vec![0], vec![4, 6])]);
    assert_eq!(
        got(&both, "--control-core 5"),
        [(0, vec![1], vec![0, 1, 2, 3]), (1, vec![0], vec![4, 6, 7])]
    );
    // A node's only CPU may be the control plane's, too.
    let m = Machine { cpus: vec![0, 4], ..m.clone() };
    let p = plan_on(&m, &flags_of(&both, "")).unwrap();
    assert_eq!((parts(&p), p.control_cpu), (vec![(0, vec![1], vec![0]), (1, vec![0], vec![4])], 0));
    assert!(p.notes[0].contains("CPU 0 serves packets and everything else"), "{:?}", p.notes);
}

#[test]
fn each_part_has_its_share() {
    let (_t, m) = two_nodes("shares");
    let ports = ["81:00.0", "net_null0", "net_null1"];
    let p = plan_on(&m, &flags_of(&ports, "")).unwrap();
    assert_eq!(parts(&p), [(0, vec![1, 2], vec![1, 2, 3]), (1, vec![0], vec![4, 5, 6, 7])]);
    let slots = |p: &Plan| p.parts.iter().map(|part| part.slots).collect::<Vec<_>>();
    assert_eq!(slots(&p), [6 * SLOTS_PER_QUEUE, 4 * SLOTS_PER_QUEUE]);
    assert_eq!((p.slots(), p.worker_cpus()), (10 * SLOTS_PER_QUEUE, vec![1, 2, 3, 4, 5, 6, 7]));
    assert_eq!(p.divided_over(), [0, 1]);
    let own = plan_on(&m, &flags_of(&ports, "--slots 20009")).unwrap();
    assert_eq!(slots(&own), [12_005, 8_003]);
    let few = plan_on(&m, &flags_of(&ports, "--slots 9")).unwrap_err().to_string();
    assert!(few.contains("--slots 9 is too few: 10 queues need"), "{few}");
    // Half of the items' memory is of node 1, which has 100 MB.
    let notes = |more: &str| plan_on(&m, &flags_of(&ports, more)).unwrap().notes;
    let small = "-c 10 --cores 3,4";
    assert!(notes(&format!("-m 8 {small}")).is_empty());
    let wanted = 400 / 7 * 4 + 8 + if cfg!(feature = "dpdk") { 52 } else { 0 };
    let note = notes(&format!("-m 400 {small}"));
    let said = format!("NUMA node 1 has 100 MB free of {} MB that are wanted", wanted + 1);
    assert!(note.len() == 1 && note[0].starts_with(&said), "{note:?}: {said}");
    // What `check` looks at.
    let args = flags_of(&ports, small);
    let args: Vec<&str> = args.split_whitespace().collect();
    let wants = Wants::new(&flags::parse(&args).unwrap(), &m);
    let nodes: Vec<_> = wants.nodes.iter().map(|n| (n.id, n.worker_cpus.clone())).collect();
    assert_eq!(nodes, [(0, vec![3]), (1, vec![4])]);
    assert_eq!(wants.nodes.iter().map(|n| n.memory_bytes).sum::<u64>(), wants.memory_bytes);
    // A queue's slots: what DPDK has of its own is the same on each.
    assert_eq!((wants.nodes[0].memory_bytes - wants.nodes[1].memory_bytes) >> 20, 8);
    assert_eq!(wants.worker_cpus, [3, 4]);
}

#[test]
fn what_cannot_be_divided_is_said() {
    let (_t, m) = two_nodes("undivided");
    let both: &[&str] = &["81:00.0", "82:00.0"];
    let simt = Machine { has_simt: true, ..m.clone() };
    let gpu = Machine { find_gpu: Some(|| Gpu::Found(vec!["a GPU".to_owned()])), ..m.clone() };
    let far = Machine { cpus: vec![4, 5], ..m.clone() };
    let one_node = Tree::new("one-node", &[("devices/system/node/node0/cpulist", "0-7")]);
    let one = Machine { sysfs: one_node.0.clone(), ..Machine::pretend() };
    let nulls: &[&str] = &["net_null0", "net_null1"];
    for (machine, ports, more, said) in [
        (&m, &[][..], "", "divides the NICs of --port over their nodes, and there is no --port"),
        (&one, nulls, "", "needs two NUMA nodes, and this kernel knows of fewer"),
        (&Machine::pretend(), nulls, "", "needs two NUMA nodes, and this kernel knows of fewer"),
        (&m, &["81:00.0"], "", "all ports are on node 1, and it needs ports on two"),
        (&far, nulls, "", "all ports are on node 1, and it needs ports on two"),
        (&far, both, "", "node 0 has a port and none of the CPUs 4-5"),
        (&m, both, "--cores 4,5", "node 0 has a port and none of the CPUs 4-5"),
        (&m, &["82:00.0", "net_null0"], "--cores 1,2", "all ports are on node 0"),
        (
            &simt,
            both,
            "--engine simt",
            "with --engine simt each of the 2 nodes with a port needs a GPU, and --gpu-device names 1",
        ),
    ] {
        let error = plan_on(machine, &flags_of(ports, more)).expect_err(said).to_string();
        assert!(error.starts_with("--numa-node split") && error.contains(said), "{error}");
    }
    for (machine, more) in [
        (&gpu, ""),
        (&gpu, "--engine cpu"),
        (&gpu, "--engine gpu --gpu-device 0,1"),
        (&simt, "--engine simt --gpu-device 0,1"),
    ] {
        let p = plan_on(machine, &flags_of(both, more)).unwrap();
        assert_eq!((p.parts.len(), p.offload.is_some()), (2, !more.contains("cpu")), "{more}");
    }
    // A CPU that no part would have.
    let third = Tree::new(
        "third-node",
        &[
            ("devices/system/node/node0/cpulist", "0-3"),
            ("devices/system/node/node1/cpulist", "4-5"),
            ("devices/system/node/node2/cpulist", "6-7"),
        ],
    );
    let m = Machine { sysfs: third.0.clone(), ..Machine::pretend() };
    let error = plan_on(&m, &flags_of(nulls, "--cores 1,4,7")).unwrap_err();
    assert_eq!(error, PlanError::SplitCpuWithoutPort(7));
}
