//! Why there is no plan, and what to do about it.

use crate::host::machine::FileFault;
use crate::startup::flags::Network;
use std::net::IpAddr;
use std::path::PathBuf;

/// Why there is no plan. Each message names the flag and the way out.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum PlanError {
    #[error("nothing to serve: -p 0 turns TCP off and -U 0 turns UDP off; give one of them a port")]
    NothingToServe,
    #[error(
        "--port needs DPDK, which this build leaves out: build with the feature dpdk, or serve kernel sockets without --port"
    )]
    NoDpdk,
    #[error(
        "--port serves UDP: give -U a port of its own, not 0 or -1, or leave TCP to the workers: -p NUM, and no --tcp kernel"
    )]
    PortWithoutUdp,
    #[error("--port {0} is given twice: name each device once")]
    PortTwice(String),
    #[error("--gpu-device names {0} twice: name each GPU once")]
    GpuTwice(u32),
    #[error("--port {0}: no such PCI device on this machine; `lspci -D` lists what there is")]
    NoSuchDevice(String),
    #[error(
        "--port {address} is held by {driver}: bind it to vfio-pci first (gnomon bind {address}); its kernel interface goes away with that"
    )]
    WrongDriver { address: String, driver: String },
    #[error(
        "--index-memory is for an index, and with --gpu-replies complete the GPU has whole replies in its place: say --gpu-values"
    )]
    IndexBesideReplies,
    /// A kernel that stays on each of several GPUs.
    #[error(
        "--gpu-mode persistent is for one GPU: a kernel that stays on one may hold up what the driver does for another; say launch or graph"
    )]
    PersistentOnSeveral,
    #[error(
        "--gpu-sms is for --gpu-mode persistent, whose kernel stays on the GPU: in the other modes each batch has four blocks or so, and they end"
    )]
    MultiprocessorsOfLaunches,
    #[error(
        "--gpu-values is for --gpu-replies complete: say both, or --index-memory for the index"
    )]
    ValuesWithoutReplies,
    #[error(
        "--isolated on: the kernel does not share {0}, and has nothing to keep of it: leave it to mlx5 or mlx4, or do without --isolated"
    )]
    NothingToIsolate(String),
    #[error("port {index} ({device}) has no address: give it one with --ip {index}=ADDR/LEN")]
    PortWithoutIp { index: usize, device: String },
    #[error(
        "--ip names addresses of a --port, and there is none: kernel sockets listen at --listen"
    )]
    IpWithoutPort,
    #[error(
        "--tcp worker serves TCP on a --port, and there is none: without --port TCP is the kernel's"
    )]
    TcpWithoutPort,
    #[error(
        "--ip {0}: of which port? With several ports write INDEX=ADDR/LEN, the first --port being 0"
    )]
    IpOfWhichPort(Network),
    #[error("--ip {index}=…: there are {ports} ports, the first being 0")]
    IpOfNoPort { index: usize, ports: usize },
    #[error(
        "--ip {0}: a port needs an address of its own, not a loopback, multicast, broadcast or unspecified one, nor a network's first or last"
    )]
    IpNotAHost(Network),
    #[error("--ip {0} is given twice: an address belongs to one port")]
    IpTwice(IpAddr),
    #[error("port {index} has more than {most} addresses of one IP version: give it fewer --ip")]
    IpTooMany { index: usize, most: usize },
    #[error(
        "--side-door tap needs a --port: kernel sockets leave everything else to the kernel anyway"
    )]
    ExceptionPathWithoutPort,
    #[error("--isolated on leaves traffic of a --port to the kernel, and there is none")]
    IsolatedWithoutPort,
    #[error("{0}; it stands behind --")]
    Eal(String),
    #[error(
        "--side-door tap={0}: a device name has at most 15 characters, the port's number included; shorten it"
    )]
    ExceptionPathName(String),
    #[error(
        "arguments after -- are for DPDK, which only a --port uses: leave them out or give a --port"
    )]
    EalWithoutPort,
    /// An empty affinity mask, or one that cannot be read.
    #[error("cannot tell which CPUs this process may use; check its affinity and its cpuset")]
    NoCpus,
    #[error(
        "{flag}: CPU {cpu} is not among those that this process may use ({allowed}); check taskset and the cpuset"
    )]
    CpuNotAllowed { flag: &'static str, cpu: usize, allowed: String },
    #[error(
        "--control-core {0} is also in --cores: packets would starve everything else; take it out of one"
    )]
    ControlCoreServes(usize),
    #[error("--numa-node {node}: there is no such node here; {there}")]
    NoSuchNode { node: u32, there: String },
    #[error(
        "--numa-node split divides the NICs of --port over their nodes, and there is no --port: leave it out"
    )]
    SplitWithoutPort,
    #[error("--numa-node split needs two NUMA nodes, and this kernel knows of fewer: leave it out")]
    SplitOfOneNode,
    #[error(
        "--numa-node split: all ports are on node {0}, and it needs ports on two: leave it out, and the whole appliance is there"
    )]
    SplitOntoOneNode(u32),
    #[error(
        "--numa-node split: node {node} has a port and none of the CPUs {among}: give it one, or choose one node"
    )]
    SplitWithoutCpu {
        node: u32,
        /// Of `--cores`, or allowed.
        among: String,
    },
    #[error("--numa-node split: CPU {0} of --cores is on no node that has a port: leave it out")]
    SplitCpuWithoutPort(usize),
    #[error(
        "--numa-node split: with --engine {engine} each of the {nodes} nodes with a port needs a GPU, and --gpu-device names {gpus}: name more, use --engine auto or cpu, or choose one node"
    )]
    SplitWithFewerGpus { engine: &'static str, nodes: usize, gpus: usize },
    #[error("-m {0}: that many megabytes cannot be addressed; lower -m")]
    MemoryAbsurd(u64),
    /// None, or without a limit, as memcached has it.
    #[error("-m 0: memory for items has a limit here; say how many megabytes")]
    NoMemory,
    /// Below memcached's bound, or above a slab page.
    #[error("-I {0}: an item's limit must lie between 1k and 1024m")]
    ItemSize(u64),
    #[error("-I {item_max} is more than half of -m {memory_mb} MB: raise -m or lower -I")]
    ItemAboveHalf { item_max: u64, memory_mb: u64 },
    /// Not enough memory for one large request beside what every connection has.
    #[error(
        "--conn-memory {typed} is too little for -c, -t and -I: give it {least} bytes or more, or lower these"
    )]
    ConnMemory { typed: u64, least: u64 },
    /// The pipeline would run dry.
    #[error(
        "--slots {slots} is too few: {queues} queues need at least {least}; raise --slots, or lower --batch or the number of --cores"
    )]
    Slots { slots: u32, queues: u32, least: u32 },
    #[error(
        "{items_mb} MB for items, {index_mb} MB for their index and {packets_mb} MB for packets are more than the {available_mb} MB available{}: lower -m, --slab-pages or --slots, or free memory",
        beside_huge_pages(*.huge_mb)
    )]
    Memory {
        /// As `-m` says, or `--slab-pages`.
        items_mb: u64,
        index_mb: u64,
        packets_mb: u64,
        /// What the machine or the control group has left, huge pages apart.
        available_mb: u64,
        huge_mb: u64,
    },
    #[error(
        "--huge on needs {pages} huge pages of 2 MB and {free} are free: reserve more (sysctl vm.nr_hugepages={pages}), or use --huge auto"
    )]
    HugePages { pages: u64, free: u64 },
    #[error("{flag} and -P are both {}: give the pid file another name", path.display())]
    PidFileIs { flag: &'static str, path: PathBuf },
    #[error("{flag} {}: the path of a Unix socket has at most 107 bytes: choose another", path.display())]
    SocketPath { flag: &'static str, path: PathBuf },
    #[error("-e {}: {why}", path.display())]
    MemoryFile { path: PathBuf, why: FileFault },
    #[error(
        "--huge on: -e {} is not in a hugetlbfs: mount one (mount -t hugetlbfs -o pagesize=2M none DIR), or use --huge auto",
        path.display()
    )]
    MemoryFileNotHuge { path: PathBuf },
    #[error(
        "-e {}: its hugetlbfs has pages of {page_mb} MB: mount one with pages of 2 MB (-o pagesize=2M)",
        path.display()
    )]
    MemoryFilePages { path: PathBuf, page_mb: u64 },
    #[error(
        "-e {}: {need_mb} MB are needed and its file system has {free_mb} MB: make that larger (mount -o remount,size=…), or lower -m",
        path.display()
    )]
    MemoryFileSpace {
        path: PathBuf,
        /// Items and metadata.
        need_mb: u64,
        /// Free, and the file's already.
        free_mb: u64,
    },
    #[error(
        "-c {conn_limit} needs {need} open files and the limit is {limit}: lower -c, or raise it (ulimit -Hn, LimitNOFILE=)"
    )]
    OpenFiles {
        conn_limit: u32,
        /// With listeners and the rest.
        need: u64,
        limit: u64,
    },
    #[error("-f {0}: the growth factor must be greater than 1")]
    GrowthFactor(f64),
    #[error(
        "--slab-pages has {need} pages of 2 MB, and -m {memory_mb} holds fewer: give -m {}, or fewer pages",
        need.saturating_mul(2)
    )]
    SlabPages { need: u64, memory_mb: u64 },
    #[error("-f {0}: with --profile fpga sizes are powers of two: leave -f out, or say -f 2")]
    ProfileGrowth(f64),
    #[error("--slab-pages {0}:…: with --profile fpga sizes are powers of two")]
    ProfileSize(usize),
    #[error(
        "--profile fpga: -m {memory_mb} has no page of 2 MB for each of {classes} sizes: give -m {least_mb} or more, or --slab-pages"
    )]
    ProfileMemory { memory_mb: u64, classes: u64, least_mb: u64 },
    #[error(
        "-n {0}: the smallest chunk would be larger than the largest item: lower -n, or raise -I"
    )]
    ChunkMin(u32),
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
    HashPower { power: u64, threads: u16 },
    #[error(
        "-o slab_chunk_max={chunk}: -I {item_max} is no multiple of it: leave it out, it has no effect here"
    )]
    SlabChunkMax { chunk: u64, item_max: u64 },
    #[error(
        "-S: SASL without a file of users is not supported: name one, of user:password, with -Y"
    )]
    SaslWithoutUsers,
    #[error("-S: SASL is of the binary protocol alone: leave -B out, or -S")]
    SaslWithAscii,
    #[error(
        "-Z: name the server's certificate with -o ssl_chain_cert=FILE, and its key with -o ssl_key=FILE"
    )]
    TlsWithoutCert,
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
    #[error("-l btls: and mtls: need -Z")]
    ListenTlsWithout,
    #[error(
        "-Y: no client can authenticate over UDP, so it would be open to all: turn it off with -U 0, or leave -U out"
    )]
    AuthWithUdp,
    /// `-Y` and a port whose service is UDP.
    #[error(
        "-Y: a --port serves UDP, where no client can authenticate: leave out --tcp kernel, or leave -Y out and name the clients' networks with --allow"
    )]
    AuthWithPort,
    #[error(
        "-Y: clients of the binary protocol can authenticate by SASL alone: add -S, or leave -B out"
    )]
    AuthWithBinary,
    #[error("--rdma answers packets that a kernel socket does not bring: it needs --port")]
    RdmaWithoutPort,
    #[error("-U 4791 is the port of --rdma's packets: take another for memcached's")]
    RdmaUdpPort,
    #[error("-Z encrypts values, and READs of --rdma do not: leave one of them out")]
    RdmaWithTls,
    #[error("--shared-reads is for clients that read items in the memory file: it needs -e FILE")]
    SharedReadsWithoutFile,
    #[error(
        "-s serves a Unix socket and no network, and --port serves a network: leave one of them out"
    )]
    UnixWithPort,
    #[error(
        "--engine gpu: this build leaves out CUDA (the feature cuda): use --engine auto or cpu"
    )]
    NoCuda,
    #[error("--engine gpu: {0}; or use --engine auto or cpu")]
    NoGpu(String),
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
