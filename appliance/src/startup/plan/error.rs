//! Why there is no plan, and what to do about it.

use crate::host::machine::FileFault;
use crate::startup::flags::Network;
use std::net::IpAddr;
use std::path::PathBuf;

/// Why there is no plan. Each message names the flag and the way out.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// `-p 0 -U 0`.
    #[error("nothing to serve: -p 0 turns TCP off and -U 0 turns UDP off; give one of them a port")]
    NothingToServe,
    /// `--port` in a build without DPDK.
    #[error(
        "--port needs DPDK, which this build leaves out: build with the feature dpdk, or serve kernel sockets without --port"
    )]
    NoDpdk,
    /// `--port` without a fixed UDP port.
    #[error(
        "--port serves UDP: give -U a port of its own, not 0 or -1, or leave TCP to the workers: -p NUM, and no --tcp kernel"
    )]
    PortWithoutUdp,
    /// A device named twice.
    #[error("--port {0} is given twice: name each device once")]
    PortTwice(String),
    /// A GPU named twice.
    #[error("--gpu-device names {0} twice: name each GPU once")]
    GpuTwice(u32),
    /// Not on the bus.
    #[error("--port {0}: no such PCI device on this machine; `lspci -D` lists what there is")]
    NoSuchDevice(String),
    /// Held by a driver that will not share it.
    #[error(
        "--port {address} is held by {driver}: bind it to vfio-pci first (gnomon bind {address}); its kernel interface goes away with that"
    )]
    WrongDriver {
        /// The device.
        address: String,
        /// What holds it.
        driver: String,
    },
    /// `--index-memory` where there is no index.
    #[error(
        "--index-memory is for an index, and with --gpu-replies complete the GPU has whole replies in its place: say --gpu-values"
    )]
    IndexBesideReplies,
    /// A kernel that stays on each of several GPUs.
    #[error(
        "--gpu-mode persistent is for one GPU: a kernel that stays on one may hold up what the driver does for another; say launch or graph"
    )]
    PersistentOnSeveral,
    /// `--gpu-sms` where no kernel stays.
    #[error(
        "--gpu-sms is for --gpu-mode persistent, whose kernel stays on the GPU: in the other modes each batch has four blocks or so, and they end"
    )]
    MultiprocessorsOfLaunches,
    /// `--gpu-values` where there are none.
    #[error(
        "--gpu-values is for --gpu-replies complete: say both, or --index-memory for the index"
    )]
    ValuesWithoutReplies,
    /// `--isolated on` with a NIC that the kernel has given up.
    #[error(
        "--isolated on: the kernel does not share {0}, and has nothing to keep of it: leave it to mlx5 or mlx4, or do without --isolated"
    )]
    NothingToIsolate(String),
    /// A port that clients cannot address.
    #[error("port {index} ({device}) has no address: give it one with --ip {index}=ADDR/LEN")]
    PortWithoutIp {
        /// Which port.
        index: usize,
        /// Its device.
        device: String,
    },
    /// `--ip` with kernel sockets.
    #[error(
        "--ip names addresses of a --port, and there is none: kernel sockets listen at --listen"
    )]
    IpWithoutPort,
    /// `--tcp worker` with kernel sockets.
    #[error(
        "--tcp worker serves TCP on a --port, and there is none: without --port TCP is the kernel's"
    )]
    TcpWithoutPort,
    /// `--ip` with several ports.
    #[error(
        "--ip {0}: of which port? With several ports write INDEX=ADDR/LEN, the first --port being 0"
    )]
    IpOfWhichPort(Network),
    /// An index past the last port.
    #[error("--ip {index}=…: there are {ports} ports, the first being 0")]
    IpOfNoPort {
        /// As given.
        index: usize,
        /// How many there are.
        ports: usize,
    },
    /// Not an address that a host can have on a network.
    #[error(
        "--ip {0}: a port needs an address of its own, not a loopback, multicast, broadcast or unspecified one, nor a network's first or last"
    )]
    IpNotAHost(Network),
    /// The same address on two ports.
    #[error("--ip {0} is given twice: an address belongs to one port")]
    IpTwice(IpAddr),
    /// More addresses than a port can have.
    #[error("port {index} has more than {most} addresses of one IP version: give it fewer --ip")]
    IpTooMany {
        /// Which port.
        index: usize,
        /// How many it can have.
        most: usize,
    },
    /// `--side-door tap` with kernel sockets.
    #[error(
        "--side-door tap needs a --port: kernel sockets leave everything else to the kernel anyway"
    )]
    ExceptionPathWithoutPort,
    /// Too long with the port's number.
    #[error(
        "--side-door tap={0}: a device name has at most 15 characters, the port's number included; shorten it"
    )]
    ExceptionPathName(String),
    /// EAL arguments with kernel sockets.
    #[error(
        "arguments after -- are for DPDK, which only a --port uses: leave them out or give a --port"
    )]
    EalWithoutPort,
    /// An empty affinity mask, or one that cannot be read.
    #[error("cannot tell which CPUs this process may use; check its affinity and its cpuset")]
    NoCpus,
    /// Outside the affinity mask.
    #[error(
        "{flag}: CPU {cpu} is not among those that this process may use ({allowed}); check taskset and the cpuset"
    )]
    CpuNotAllowed {
        /// The flag.
        flag: &'static str,
        /// The CPU.
        cpu: usize,
        /// Those allowed.
        allowed: String,
    },
    /// The control core is a worker's.
    #[error(
        "--control-core {0} is also in --cores: packets would starve everything else; take it out of one"
    )]
    ControlCoreServes(usize),
    /// Another machine's node.
    #[error("--numa-node {node}: there is no such node here; {there}")]
    NoSuchNode {
        /// As given.
        node: u32,
        /// Those that there are, in words.
        there: String,
    },
    /// `--numa-node split` with kernel sockets.
    #[error(
        "--numa-node split divides the NICs of --port over their nodes, and there is no --port: leave it out"
    )]
    SplitWithoutPort,
    /// `--numa-node split` where there is nothing to divide.
    #[error("--numa-node split needs two NUMA nodes, and this kernel knows of fewer: leave it out")]
    SplitOfOneNode,
    /// `--numa-node split`, and all ports on one node.
    #[error(
        "--numa-node split: all ports are on node {0}, and it needs ports on two: leave it out, and the whole appliance is there"
    )]
    SplitOntoOneNode(u32),
    /// `--numa-node split`, and a node with a port and no CPU.
    #[error(
        "--numa-node split: node {node} has a port and none of the CPUs {among}: give it one, or choose one node"
    )]
    SplitWithoutCpu {
        /// The node.
        node: u32,
        /// Of `--cores`, or allowed.
        among: String,
    },
    /// `--numa-node split`, and a CPU of `--cores` on a node without a port.
    #[error("--numa-node split: CPU {0} of --cores is on no node that has a port: leave it out")]
    SplitCpuWithoutPort(usize),
    /// `--numa-node split` and a GPU.
    #[error(
        "--numa-node split: what --engine {engine} looks requests up with reads one packet region, and here each node has its own: say --engine cpu, or choose one node"
    )]
    SplitWithOffload {
        /// `--engine`.
        engine: &'static str,
    },
    /// More bytes than there are numbers.
    #[error("-m {0}: that many megabytes cannot be addressed; lower -m")]
    MemoryAbsurd(u64),
    /// None, or without a limit, as memcached has it.
    #[error("-m 0: memory for items has a limit here; say how many megabytes")]
    NoMemory,
    /// Below memcached's bound, or above a slab page.
    #[error("-I {0}: an item's limit must lie between 1k and 1024m")]
    ItemSize(u64),
    /// Not enough memory for two.
    #[error("-I {item_max} is more than half of -m {memory_mb} MB: raise -m or lower -I")]
    ItemAboveHalf {
        /// Bytes.
        item_max: u64,
        /// Megabytes.
        memory_mb: u64,
    },
    /// Not enough memory for one large request beside what every connection has.
    #[error(
        "--conn-memory {typed} is too little for -c, -t and -I: give it {least} bytes or more, or lower these"
    )]
    ConnMemory {
        /// Bytes.
        typed: u64,
        /// Bytes.
        least: u64,
    },
    /// The pipeline would run dry.
    #[error(
        "--slots {slots} is too few: {queues} queues need at least {least}; raise --slots, or lower --batch or the number of --cores"
    )]
    Slots {
        /// As given.
        slots: u32,
        /// Queues of the plan.
        queues: u32,
        /// What they need.
        least: u32,
    },
    /// More than there is.
    #[error(
        "{items_mb} MB for items, {index_mb} MB for their index and {packets_mb} MB for packets are more than the {available_mb} MB available{}: lower -m, --slab-pages or --slots, or free memory",
        beside_huge_pages(*.huge_mb)
    )]
    Memory {
        /// As `-m` says, or `--slab-pages`.
        items_mb: u64,
        /// On top of that.
        index_mb: u64,
        /// Slots.
        packets_mb: u64,
        /// What the machine or the control group has left, huge pages apart.
        available_mb: u64,
        /// Free huge pages.
        huge_mb: u64,
    },
    /// `--huge on` without enough of them.
    #[error(
        "--huge on needs {pages} huge pages of 2 MB and {free} are free: reserve more (sysctl vm.nr_hugepages={pages}), or use --huge auto"
    )]
    HugePages {
        /// Needed.
        pages: u64,
        /// Free.
        free: u64,
    },
    /// A memory file where none can be.
    #[error("-e {}: {why}", path.display())]
    MemoryFile {
        /// As given.
        path: PathBuf,
        /// What is wrong with it.
        why: FileFault,
    },
    /// `--huge on` with a memory file elsewhere.
    #[error(
        "--huge on: -e {} is not in a hugetlbfs: mount one (mount -t hugetlbfs -o pagesize=2M none DIR), or use --huge auto",
        path.display()
    )]
    MemoryFileNotHuge {
        /// As given.
        path: PathBuf,
    },
    /// Pages that slabs do not fit.
    #[error(
        "-e {}: its hugetlbfs has pages of {page_mb} MB: mount one with pages of 2 MB (-o pagesize=2M)",
        path.display()
    )]
    MemoryFilePages {
        /// As given.
        path: PathBuf,
        /// The mount's.
        page_mb: u64,
    },
    /// Not enough memory for it.
    #[error(
        "-e {}: {need_mb} MB are needed and its file system has {free_mb} MB: make that larger (mount -o remount,size=…), or lower -m",
        path.display()
    )]
    MemoryFileSpace {
        /// As given.
        path: PathBuf,
        /// Items and metadata.
        need_mb: u64,
        /// Free, and the file's already.
        free_mb: u64,
    },
    /// The limit on open files.
    #[error(
        "-c {conn_limit} needs {need} open files and the limit is {limit}: lower -c, or raise it (ulimit -Hn, LimitNOFILE=)"
    )]
    OpenFiles {
        /// `-c`.
        conn_limit: u32,
        /// With listeners and the rest.
        need: u64,
        /// RLIMIT_NOFILE.
        limit: u64,
    },
    /// Classes that do not grow.
    #[error("-f {0}: the growth factor must be greater than 1")]
    GrowthFactor(f64),
    /// More pages than there is memory for.
    #[error(
        "--slab-pages has {need} pages of 2 MB, and -m {memory_mb} holds fewer: give -m {}, or fewer pages",
        need.saturating_mul(2)
    )]
    SlabPages {
        /// Of all classes.
        need: u64,
        /// `-m`.
        memory_mb: u64,
    },
    /// `--profile fpga` and other sizes.
    #[error("-f {0}: with --profile fpga sizes are powers of two: leave -f out, or say -f 2")]
    ProfileGrowth(f64),
    /// The same by `--slab-pages`.
    #[error("--slab-pages {0}:…: with --profile fpga sizes are powers of two")]
    ProfileSize(usize),
    /// Not a page for each.
    #[error(
        "--profile fpga: -m {memory_mb} has no page of 2 MB for each of {classes} sizes: give -m {least_mb} or more, or --slab-pages"
    )]
    ProfileMemory {
        /// `-m`.
        memory_mb: u64,
        /// Sizes up to `-I`.
        classes: u64,
        /// Megabytes.
        least_mb: u64,
    },
    /// Not enough memory for a chunk.
    #[error(
        "-n {0}: the smallest chunk would be larger than the largest item: lower -n, or raise -I"
    )]
    ChunkMin(u32),
    /// Several that differ.
    #[error("-l proto[…]: all addresses speak the same here: say it once, with -B")]
    ListenDialects,
    /// More than memcached takes.
    #[error(
        "-o hot_lru_pct, warm_lru_pct: {0}% together, and they may have 80%: lower one of them"
    )]
    LruShares(u64),
    /// A hash table of memcached's, no larger than its locks.
    #[error(
        "-o hashpower={power}: with -t {threads} memcached wants more: leave it out, it has no effect here"
    )]
    HashPower {
        /// As given.
        power: u64,
        /// TCP threads.
        threads: u16,
    },
    /// No part of an item's size.
    #[error(
        "-o slab_chunk_max={chunk}: -I {item_max} is no multiple of it: leave it out, it has no effect here"
    )]
    SlabChunkMax {
        /// As given.
        chunk: u64,
        /// Bytes.
        item_max: u64,
    },
    /// `-S`.
    #[error("-S: SASL is not supported: use -Y FILE, authentication in the ASCII protocol")]
    Sasl,
    /// `-Z` without a certificate.
    #[error(
        "-Z: name the server's certificate with -o ssl_chain_cert=FILE, and its key with -o ssl_key=FILE"
    )]
    TlsWithoutCert,
    /// Clients' certificates are to be checked, and there is no authority to check them by.
    #[error(
        "-Z: name who vouches for clients' certificates with -o ssl_ca_cert=FILE, or leave ssl_verify_mode out"
    )]
    TlsWithoutCa,
    /// `-Z` and a Unix socket, which has no TLS in memcached either.
    #[error("-Z: a Unix socket speaks no TLS: leave -s out, or -Z")]
    TlsWithUnix,
    /// `-Z` and a port, whose service is UDP.
    #[error(
        "-Z: a --port serves UDP, which is in the clear: leave out --tcp kernel, ask for UDP with -U, or leave --port out"
    )]
    TlsWithPort,
    /// `-l btls:` or `-l mtls:` without `-Z`.
    #[error("-l btls: and mtls: need -Z")]
    ListenTlsWithout,
    /// `-Y` and a UDP port.
    #[error(
        "-Y: no client can authenticate over UDP, so it would be open to all: turn it off with -U 0, or leave -U out"
    )]
    AuthWithUdp,
    /// `-Y` and a port whose service is UDP.
    #[error(
        "-Y: a --port serves UDP, where no client can authenticate: leave out --tcp kernel, or leave -Y out and name the clients' networks with --allow"
    )]
    AuthWithPort,
    /// `-Y` and `-B binary`.
    #[error(
        "-Y: only clients of the ASCII protocol can authenticate: leave -B out, or say -B ascii"
    )]
    AuthWithBinary,
    /// `--rdma` without a port.
    #[error("--rdma answers packets that a kernel socket does not bring: it needs --port")]
    RdmaWithoutPort,
    /// `--rdma`, and its port for memcached's datagrams.
    #[error("-U 4791 is the port of --rdma's packets: take another for memcached's")]
    RdmaUdpPort,
    /// `--rdma` and TLS.
    #[error("-Z encrypts values, and READs of --rdma do not: leave one of them out")]
    RdmaWithTls,
    /// `--shared-reads` without a memory file.
    #[error("--shared-reads is for clients that read items in the memory file: it needs -e FILE")]
    SharedReadsWithoutFile,
    /// `-s` and a port.
    #[error(
        "-s serves a Unix socket and no network, and --port serves a network: leave one of them out"
    )]
    UnixWithPort,
    /// `--engine gpu` in a build that cannot look for a GPU.
    #[error(
        "--engine gpu: this build leaves out CUDA (the feature cuda): use --engine auto or cpu"
    )]
    NoCuda,
    /// `--engine gpu` without a GPU.
    #[error("--engine gpu: {0}; or use --engine auto or cpu")]
    NoGpu(String),
    /// Not built in.
    #[error("--engine {0} is not available in this build: use --engine auto or cpu")]
    NoEngine(&'static str),
}

fn beside_huge_pages(huge_mb: u64) -> String {
    match huge_mb {
        0 => String::new(),
        _ => format!(
            ", huge pages apart ({huge_mb} MB, which hold all items, all of the index or all packets, or none)"
        ),
    }
}
