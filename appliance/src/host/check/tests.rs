//! Fake machines, one fault each.

use super::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const NIC: &str = "0000:81:00.0";

/// A directory that looks like `/`, gone when dropped.
pub(crate) struct Fake(PathBuf);

impl Fake {
    /// Empty: nothing can be read.
    pub(crate) fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("gnomon-check-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).unwrap();
        Self(root)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.0
    }

    pub(crate) fn host(&self) -> Host {
        Host::at(&self.0)
    }

    pub(crate) fn file(self, path: &str, text: &str) -> Self {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn link(self, path: &str, target: &str) -> Self {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        symlink(target, path).unwrap();
        self
    }

    /// A NIC under this driver; without one, when it is empty.
    pub(crate) fn nic(self, address: &str, driver: &str) -> Self {
        let dir = format!("sys/bus/pci/devices/{address}");
        let fake = self
            .file(&format!("{dir}/class"), "0x020000\n")
            .file(&format!("{dir}/numa_node"), "-1\n")
            .file("sys/bus/pci/drivers_probe", "");
        match driver {
            "" => fake,
            _ => fake
                .file(&format!("sys/bus/pci/drivers/{driver}/unbind"), "")
                .link(&format!("{dir}/driver"), &format!("../../../bus/pci/drivers/{driver}")),
        }
    }

    pub(crate) fn vfio(self) -> Self {
        self.file("sys/bus/pci/drivers/vfio-pci/bind", "")
    }

    pub(crate) fn default_route(self, interface: &str, address: &str) -> Self {
        self.file(&format!("sys/bus/pci/devices/{address}/net/{interface}/mtu"), "1500")
            .route_over(interface)
    }

    /// The default route, over this interface.
    pub(crate) fn route_over(self, interface: &str) -> Self {
        self.file(
            "proc/net/route",
            &format!(
                "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n\
                 {interface}\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\n"
            ),
        )
    }

    /// An interface that stands on another, as the kernel links them.
    pub(crate) fn upper(self, interface: &str, lower: &str) -> Self {
        self.link(&format!("sys/class/net/{interface}/lower_{lower}"), &format!("../{lower}"))
            .link(&format!("sys/class/net/{lower}/upper_{interface}"), &format!("../{interface}"))
    }

    /// Everything as it should be, with a bound NIC.
    fn good(name: &str) -> Self {
        Self::new(name)
            .nic(NIC, "vfio-pci")
            .vfio()
            .file("sys/kernel/iommu_groups/7/type", "DMA")
            .file("usr/lib/x86_64-linux-gnu/dpdk/pmds-23.0/librte_net_ixgbe.so", "")
            .file("dev/net/tun", "")
            .file("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "1024")
            .file(
                "proc/self/limits",
                "Max locked memory         unlimited            unlimited            bytes\n",
            )
            .file("proc/cpuinfo", "vendor_id : GenuineIntel\nflags : constant_tsc nonstop_tsc\n")
            .file("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n")
            .file("sys/devices/system/cpu/isolated", "1-3\n")
            .file("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n")
    }

    fn two_nodes(self) -> Self {
        self.file("sys/devices/system/node/node0/cpulist", "0-3\n")
            .file("sys/devices/system/node/node1/cpulist", "4-7\n")
            .file("sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages", "1024")
            .file("sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages", "1024")
    }

    fn of_nic(self, file: &str, text: &str) -> Self {
        self.file(&format!("sys/bus/pci/devices/{NIC}/{file}"), text)
    }

    fn gpu(self) -> Self {
        let dir = "sys/bus/pci/devices/0000:a1:00.0";
        self.file(&format!("{dir}/vendor"), "0x10de\n")
            .file(&format!("{dir}/class"), "0x030200\n")
            .file(&format!("{dir}/numa_node"), "1\n")
            .file(
                &format!("{dir}/resource"),
                "0x00000000f0000000 0x00000000f0ffffff 0x0000000000040200\n\
                 0x0000380000000000 0x0000381fffffffff 0x000000000014220c\n",
            )
    }

    fn nvidia(self) -> Self {
        self.file(
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  Wed\n",
        )
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn wants() -> Wants {
    Wants {
        nics: vec![PciAddress(NIC.to_owned())],
        exception_path: true,
        interfaces: Vec::new(),
        seen_twice: Vec::new(),
        isolated: Want::IfThere,
        addressed: Vec::new(),
        worker_cpus: vec![1, 2, 3],
        memory_bytes: 1 << 30,
        nodes: Vec::new(),
        huge: Want::IfThere,
        gpu: Want::IfThere,
    }
}

/// What is said about `what`: status, what was found, the fix.
fn said(fake: &Fake, wants: &Wants, what: &str) -> (Status, String, String) {
    let findings = check(&fake.host(), wants);
    let mut about = findings.iter().filter(|f| f.what == what);
    let Some(finding) = about.next() else { panic!("nothing about {what}: {findings:#?}") };
    assert!(about.next().is_none(), "twice: {what}");
    assert_eq!(finding.status == Status::Pass, finding.fix.is_none(), "{finding:?}");
    (finding.status, finding.found.clone(), finding.fix.clone().unwrap_or_default())
}

#[track_caller]
fn expect(fake: &Fake, wants: &Wants, what: &str, status: Status, found: &str, fix: &str) {
    let (s, f, x) = said(fake, wants, what);
    assert!(s == status && f.contains(found) && x.contains(fix), "{s} {f} -> {x}");
}

use Status::{Fail, Pass, Warn};

#[test]
fn a_good_machine_passes_throughout() {
    let fake = Fake::good("good");
    let findings = check(&fake.host(), &wants());
    assert!(findings.iter().all(|f| f.status == Pass), "{findings:#?}");
    assert!(findings.len() >= 10);
}

#[test]
fn huge_pages() {
    const FREE: &str = "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
    const THP: &str = "sys/kernel/mm/transparent_hugepage/enabled";
    let (what, fix) = ("huge pages", "sysctl -w vm.nr_hugepages=512");
    let few = Fake::good("few").file(FREE, "511");
    let must = Wants { huge: Want::Must, ..wants() };
    expect(&few, &wants(), what, Warn, "511 of 2 MB free, 512 wanted; 4 KB", fix);
    expect(&few, &must, what, Fail, "511", fix);
    let few = few.file(THP, "always [madvise] never");
    expect(&few, &wants(), what, Warn, "transparent", fix);
    expect(&few.file(THP, "always madvise [never]"), &wants(), what, Warn, "4 KB", fix);
    let never = Wants { huge: Want::No, ..wants() };
    expect(&Fake::good("none").file(FREE, "0"), &never, what, Pass, "not wanted", "");
    expect(&Fake::good("enough").file(FREE, "512"), &must, what, Pass, "512", "");
}

#[test]
fn huge_pages_on_the_wrong_side() {
    let fake = Fake::good("side").two_nodes().of_nic("numa_node", "1");
    let fake =
        fake.file("sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages", "0");
    let fix = "echo 512 > /sys/devices/system/node/node1/hugepages/";
    expect(&fake, &wants(), "huge pages of node 1", Warn, "beside the NIC", fix);
}

#[test]
fn locked_memory() {
    let limit = |text: &str| {
        let text =
            format!("Max locked memory         {text}              {text}              bytes");
        Fake::good("locked").file("proc/self/limits", &text)
    };
    let (what, fix) = ("locked memory", "LimitMEMLOCK=infinity");
    expect(&limit("8388608"), &wants(), what, Fail, "8192 KB, 1024 MB", fix);
    expect(&limit("2147483648"), &wants(), what, Pass, "2048 MB", "");
    let root = limit("8388608").file("proc/self/status", "CapEff:\t000001ffffffffff\n");
    expect(&root, &wants(), what, Pass, "CAP_IPC_LOCK", "");
    let user = root.file("proc/self/status", "CapEff:\t0000000000000000\n");
    expect(&user, &wants(), what, Fail, "8192 KB", fix);
    let unknown = Fake::good("unlimited").file("proc/self/limits", "");
    expect(&unknown, &wants(), what, Pass, "cannot be read", "");
}

#[test]
fn many_small_mappings() {
    let small = Wants { huge: Want::No, ..wants() };
    let fix = "dma_entry_limit=1000000";
    expect(&Fake::good("dma"), &small, "DMA mappings", Fail, "65535 allowed, 262144", fix);
}

#[test]
fn clocks() {
    const SOURCE: &str = "sys/devices/system/clocksource/clocksource0/current_clocksource";
    let hpet = Fake::good("clock").file(SOURCE, "hpet");
    expect(&hpet, &wants(), "clock", Warn, "the TSC is steady", "echo tsc > /sys");
    let old = hpet.file("proc/cpuinfo", "flags : tsc");
    expect(&old, &wants(), "clock", Warn, "no steady TSC", "another machine");
    let guest = old.file(SOURCE, "kvm-clock");
    expect(&guest, &wants(), "clock", Pass, "kvm-clock", "");
}

#[test]
fn cpus_that_poll() {
    let isolation = "workers' CPUs, isolation";
    let fake = Fake::good("cpus").file("sys/devices/system/cpu/isolated", "2\n");
    expect(&fake, &wants(), isolation, Warn, "1,3 also run", "isolcpus=1-3 nohz_full=1-3");
    let slow = fake.file("sys/devices/system/cpu/cpu2/cpufreq/scaling_governor", "powersave\n");
    let fix = "cpupower -c 1-3 frequency-set -g performance";
    expect(&slow, &wants(), "workers' CPUs, governor", Warn, "powersave", fix);
    let zero = Wants { worker_cpus: vec![0, 1], ..wants() };
    expect(&slow, &zero, "workers' CPUs, CPU 0", Warn, "interrupts", "--cores without 0");
    let smt = slow
        .file("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "1-2\n")
        .file("sys/devices/system/cpu/cpu2/topology/thread_siblings_list", "1-2\n");
    expect(&smt, &wants(), "workers' CPUs, cores", Warn, "1-2 share", "one thread of each core");
    // Workers that sleep may share.
    let sockets = Wants { nics: Vec::new(), ..wants() };
    assert!(check(&smt.host(), &sockets).iter().all(|f| !f.what.starts_with("workers")));
}

#[test]
fn an_interface_that_the_kernel_reads_too_is_named() {
    let seen_twice = vec!["wire0".to_owned()];
    let sockets = Wants { nics: Vec::new(), seen_twice, ..wants() };
    let fake = Fake::new("twice");
    expect(&fake, &sockets, "wire0", Warn, "the kernel sees its frames too", "drop its ingress");
    assert!(before_start(&fake.host(), &sockets).is_ok());
}

#[test]
fn an_interface_that_there_is_not_is_named() {
    let sockets = Wants { nics: Vec::new(), interfaces: vec!["wire0".to_owned()], ..wants() };
    let fake = Fake::new("nowire");
    expect(&fake, &sockets, "wire0", Fail, "no interface has that name", "ip link");
    let dev = "Inter-|   Receive\n face |bytes\n  lo:       0\n wire0:    1500\n";
    let there = Fake::new("wire").file("proc/self/net/dev", dev);
    assert!(check(&there.host(), &sockets).iter().all(|f| f.what != "wire0"));
}

#[test]
fn iommu_and_vfio() {
    let off = || Fake::new("iommu").nic(NIC, "vfio-pci").vfio();
    expect(&off(), &wants(), "IOMMU", Fail, "off", "intel_iommu=on iommu=pt");
    let amd = off().file("proc/cpuinfo", "vendor_id : AuthenticAMD");
    expect(&amd, &wants(), "IOMMU", Fail, "off", "amd_iommu=on iommu=pt");
    let brave = off().file("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n");
    expect(&brave, &wants(), "IOMMU", Fail, "does not help", "iommu=pt");
    let unloaded = Fake::new("vfio").nic(NIC, "ixgbe");
    expect(&unloaded, &wants(), "vfio-pci", Fail, "not loaded", "modprobe vfio-pci");
    let shared = Fake::new("mlx").nic(NIC, "mlx5_core");
    assert!(
        check(&shared.host(), &wants()).iter().all(|f| f.what != "IOMMU" && f.what != "vfio-pci")
    );
}

#[test]
fn dpdk_and_the_exception_path() {
    let bare = Fake::new("bare").nic(NIC, "vfio-pci").vfio();
    expect(&bare, &wants(), "DPDK's drivers", Fail, "no directory", "apt-get install");
    expect(&bare, &wants(), "exception path", Fail, "/dev/net/tun", "modprobe tun");
    // The archive brings its drivers; the machine has none.
    let archive = Fake::new("archive")
        .nic(NIC, "vfio-pci")
        .link("proc/self/exe", "/opt/gnomon/bin/gnomon")
        .file("opt/gnomon/lib/gnomon/pmds/librte_net_ixgbe.so.23", "");
    expect(&archive, &wants(), "DPDK's drivers", Pass, "/opt/gnomon/lib/gnomon/pmds", "");
    let shut = Wants { exception_path: false, ..wants() };
    assert!(check(&bare.host(), &shut).iter().all(|f| f.what != "exception path"));
}

#[test]
fn nics_that_are_none() {
    let nic = format!("NIC {NIC}");
    expect(&Fake::new("no-nic"), &wants(), &nic, Fail, "no such PCI", "lspci -D");
    let disk = Fake::good("disk").of_nic("class", "0x010802");
    expect(&disk, &wants(), &nic, Fail, "class 0108", "grep -i net");
}

#[test]
fn drivers_of_nics() {
    let driver = format!("NIC {NIC} driver");
    let with = |driver: &str| Fake::new("driver").nic(NIC, driver);
    let fix = format!("gnomon bind {NIC}");
    expect(&with("ixgbe"), &wants(), &driver, Fail, "ixgbe, the kernel's", &fix);
    expect(&with(""), &wants(), &driver, Fail, "none", &fix);
    expect(&with("igb_uio"), &wants(), &driver, Fail, "no IOMMU between", &fix);
    expect(&with("uio_pci_generic"), &wants(), &driver, Fail, "no IOMMU between", &fix);
    expect(&with("mlx5_core"), &wants(), &driver, Pass, "leave it bound", "");
    expect(&with("vfio-pci"), &wants(), &driver, Pass, "vfio-pci", "");
}

#[test]
fn what_the_kernel_keeps_of_a_shared_nic() {
    let what = format!("NIC {NIC} isolation");
    let shared = Fake::new("shared").nic(NIC, "mlx5_core").of_nic("net/eth1/mtu", "1500");
    let with = |isolated, addressed: &[&str]| {
        let addressed = addressed.iter().map(|nic| PciAddress((*nic).to_owned())).collect();
        Wants { isolated, addressed, ..wants() }
    };
    expect(&shared, &with(Want::No, &[NIC]), &what, Pass, "off: every frame", "");
    expect(&shared, &with(Want::IfThere, &[NIC]), &what, Pass, "on if the driver can", "");
    expect(&shared, &with(Want::Must, &[NIC]), &what, Pass, "on: the kernel keeps", "");
    let fix = "ip addr add ADDRESS dev eth1";
    expect(&shared, &with(Want::IfThere, &[]), &what, Warn, "off, since eth1 lacks", fix);
    expect(&shared, &with(Want::Must, &[]), &what, Warn, "does not answer ARP", fix);
    let bound = Fake::good("bound");
    assert!(check(&bound.host(), &wants()).iter().all(|f| f.what != what));
}

#[test]
fn the_way_out_is_left_alone() {
    let routes = format!("NIC {NIC} routes");
    let fake = Fake::new("route").nic(NIC, "mlx5_core").default_route("eth0", NIC);
    expect(&fake, &wants(), &routes, Fail, "over eth0", "another NIC");
    let kept = Wants { isolated: Want::Must, ..wants() };
    assert!(check(&fake.host(), &kept).iter().all(|f| f.what != routes));
    let taken = Fake::new("route-taken").nic(NIC, "ixgbe").default_route("eth0", NIC);
    expect(&taken, &kept, &routes, Fail, "over eth0", "another NIC");
    let v6 = Fake::new("route6").nic(NIC, "ixgbe").of_nic("virtio3/net/ens3/mtu", "1500").file(
        "proc/net/ipv6_route",
        "00000000000000000000000000000000 00 00000000000000000000000000000000 00 \
         fe800000000000000000000000000001 00000400 00000001 00000000 00000003     ens3\n",
    );
    expect(&v6, &wants(), &routes, Fail, "over ens3", "another NIC");
    let other = Fake::new("other").nic(NIC, "ixgbe").default_route("eth0", "0000:01:00.0");
    assert!(check(&other.host(), &wants()).iter().all(|f| f.what != routes));
}

#[test]
fn the_way_out_may_stand_on_others() {
    let routes = format!("NIC {NIC} routes");
    let with = |name: &str| Fake::new(name).nic(NIC, "ixgbe").default_route("eth0", NIC);
    for upper in ["bond0", "br0", "eth0.100", "team0", "macvlan0"] {
        let one = with("upper").upper(upper, "eth1").upper(upper, "eth0").route_over(upper);
        expect(&one, &wants(), &routes, Fail, &format!("over {upper} on eth0"), "another NIC");
    }
    let deep = with("deep").upper("bond0", "eth0").upper("bond0.7", "bond0");
    let deep = deep.upper("br0", "bond0.7").route_over("br0");
    expect(&deep, &wants(), &routes, Fail, "over br0 on eth0", "another NIC");
    // Not down from what the NIC stands under: eth0's VLAN is no way out here.
    let other = with("upper-other").upper("eth0.100", "eth0").upper("bond0", "eth1");
    let other = other.route_over("bond0");
    assert!(check(&other.host(), &wants()).iter().all(|f| f.what != routes));
    // Links in a ring end.
    let ring = with("ring").upper("a", "b").upper("b", "a").route_over("a");
    assert!(check(&ring.host(), &wants()).iter().all(|f| f.what != routes));
}

#[test]
fn groups_are_handed_out_whole() {
    let group = format!("NIC {NIC} IOMMU group");
    let member =
        |fake: Fake, address: &str| fake.of_nic(&format!("iommu_group/devices/{address}/x"), "");
    let sound = "0000:81:00.1";
    let shared = member(member(Fake::good("group"), NIC), sound).nic(sound, "snd_hda_intel");
    let fix = format!("gnomon bind {sound}");
    expect(&shared, &wants(), &group, Fail, "which the kernel has", &fix);
    let bridge = shared.file(&format!("sys/bus/pci/devices/{sound}/class"), "0x060400");
    expect(&bridge, &wants(), &group, Pass, "its own", "");
}

#[test]
fn links_below_their_best() {
    let link = format!("NIC {NIC} PCIe link");
    let at = |speed: &str, width: &str| {
        Fake::good("link")
            .of_nic("current_link_speed", speed)
            .of_nic("max_link_speed", "16.0 GT/s PCIe")
            .of_nic("current_link_width", width)
            .of_nic("max_link_width", "16")
    };
    expect(&at("16.0 GT/s PCIe", "8"), &wants(), &link, Warn, "x8, of 16.0 GT/s PCIe x16", "slot");
    expect(&at("8.0 GT/s PCIe", "16"), &wants(), &link, Warn, "8.0 GT/s", "slot");
    expect(&at("16.0 GT/s PCIe", "16"), &wants(), &link, Pass, "x16", "");
    let unknown = at("Unknown", "0");
    assert!(check(&unknown.host(), &wants()).iter().all(|f| f.what != link));
}

#[test]
fn workers_beside_their_nic() {
    let node = format!("NIC {NIC} NUMA node");
    let fake = Fake::good("node").two_nodes().of_nic("numa_node", "1");
    expect(&fake, &wants(), &node, Warn, "workers on 1-3 are elsewhere", "--cores out of 4-7");
    let near = Wants { worker_cpus: vec![4, 5], ..wants() };
    expect(&fake, &near, &node, Pass, "as the workers", "");
    // Divided, only those of its own node serve it.
    let of = |id, worker_cpus: &[usize]| OfNode {
        id,
        worker_cpus: worker_cpus.to_vec(),
        memory_bytes: 512 << 20,
    };
    let nodes = vec![of(0, &[1, 2, 3]), of(1, &[4])];
    let divided = Wants { worker_cpus: vec![1, 2, 3, 4], nodes, ..wants() };
    expect(&fake, &divided, &node, Pass, "as the workers", "");
    let pages = "sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages";
    assert!(check(&fake.host(), &divided).iter().all(|f| f.what != "huge pages of node 0"));
    let fake = fake.file(pages, "255");
    let fix = "echo 256 > /sys/devices/system/node/node0/hugepages/";
    expect(&fake, &divided, "huge pages of node 0", Warn, "255 of 2 MB free, 256 wanted", fix);
}

#[test]
fn gpus() {
    let must = Wants { gpu: Want::Must, ..wants() };
    let none = Fake::good("gpu-none");
    expect(&none, &wants(), "GPU", Pass, "the CPU looks", "");
    expect(&none, &must, "GPU", Fail, "none", "--engine auto");
    let idle = Fake::good("gpu").gpu();
    expect(&idle, &wants(), "GPU driver", Warn, "not loaded", "nvidia-driver");
    expect(&idle, &must, "GPU driver", Fail, "not loaded", "modprobe nvidia");
    let driven = idle.nvidia();
    expect(&driven, &must, "GPU driver", Pass, "580.159.03", "");
    let persistence = "GPU persistence";
    expect(&driven, &must, persistence, Warn, "off", "enable --now nvidia-persistenced");
    let awake = driven.file("run/nvidia-persistenced/socket", "");
    expect(&awake, &must, persistence, Pass, "kept awake", "");
    expect(&awake, &must, "GPU 0000:a1:00.0 BAR 1", Pass, "131072 MB", "");
    let small = awake.file(
        "sys/bus/pci/devices/0000:a1:00.0/resource",
        "0x0 0x0 0x0\n0x00000000e0000000 0x00000000efffffff 0x000000000014220c\n",
    );
    expect(&small, &must, "GPU 0000:a1:00.0 BAR 1", Warn, "256 MB", "resizable BAR");
    let apart = small.two_nodes().of_nic("numa_node", "0");
    expect(&apart, &must, "GPU 0000:a1:00.0 NUMA node", Warn, "1; NIC", "same processor");
    let unwanted = Wants { gpu: Want::No, ..wants() };
    assert!(check(&apart.host(), &unwanted).iter().all(|f| !f.what.starts_with("GPU")));
}

#[test]
fn this_machine_is_told_the_truth_about() {
    let host = Host::this();
    let sockets = Wants { nics: Vec::new(), ..wants() };
    let findings = check(&host, &sockets);
    let about = |what: &str| findings.iter().find(|f| f.what == what).unwrap();
    let free = host.number("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").unwrap_or(0);
    assert_eq!(about("huge pages").status == Pass, free >= 512);
    assert_eq!(about("clock").status == Pass, {
        let source = host.read("sys/devices/system/clocksource/clocksource0/current_clocksource");
        source.is_none_or(|s| {
            ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"]
                .contains(&s.as_str())
        })
    });
}

#[test]
fn it_reads_so() {
    let findings = vec![
        Finding::pass("clock", "tsc"),
        Finding::fail("NIC 0000:81:00.0 driver", "none", "gnomon bind 0000:81:00.0"),
    ];
    let report = CheckReport { findings };
    assert!(!report.is_good());
    assert_eq!(
        report.to_string(),
        "PASS  clock                    tsc\n\
         FAIL  NIC 0000:81:00.0 driver  none\n\
         \x20                              -> gnomon bind 0000:81:00.0\n\
         1 passed, 0 to look at, 1 failed"
    );
}
