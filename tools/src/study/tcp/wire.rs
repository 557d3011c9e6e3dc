//! A server at the other end of a wire: gnomon behind one of DPDK's drivers, or any server with kernel sockets behind
//! a veth cable. Client and server have a network namespace each, and the client has the kernel's TCP.
//!
//! A worker that waits for requests takes a whole CPU, so a server is stopped while it is not measured.

use super::namespace::Namespace;
use crate::study::children::{Running, SocketFile};
use crate::study::server::Server;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{self, ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{self, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// gnomon's.
const PORT: u16 = 11_211;
/// Longest wait for a server, or for a device of its making.
const START_MAX: Duration = Duration::from_secs(60);
/// Pause between two looks whether a device is there.
const LOOK: Duration = Duration::from_millis(20);
/// Frames a second on the exception path: no limit.
const EXCEPTION_RATE: u32 = 10_000_000;
/// Connections that gnomon takes besides the client's: those that end while others begin.
const CONNECTIONS_MORE: usize = 100;

/// What joins client and worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The client's device is a TAP device of the driver's.
    NetTap,
    /// A packet socket on a veth cable.
    AfPacket,
    /// Shared memory, and DPDK's testpmd between it and a TAP device.
    Memif,
}

/// Who serves the TCP of a port of gnomon's.
#[derive(Debug, Clone, Copy)]
pub(super) enum Tcp {
    /// The workers.
    Worker,
    /// The kernel, behind the exception path.
    Kernel,
}

/// A server, stopped, and the client's end of its wire.
#[derive(Debug)]
pub(super) struct Wire {
    client: Namespace,
    address: SocketAddr,
    /// The server first.
    processes: Vec<Process>,
    /// Of a memif.
    _socket: Option<SocketFile>,
}

/// A process that ends when this is dropped.
#[derive(Debug)]
enum Process {
    Server(Server),
    Program(Program),
}

#[derive(Debug)]
struct Program(Running);

impl Wire {
    /// A server with kernel sockets, from its command line ([`Server::start`]), behind a veth cable.
    ///
    /// # Errors
    /// The namespaces', or the server's.
    pub(super) fn cable(command: &str, memory_mb: u64) -> io::Result<Self> {
        let (client, far) = (Namespace::new()?, Namespace::new()?);
        veth(&client, &far)?;
        far.command(&format!("ip addr add {SERVER}/24 dev wire0"))?;
        let server = far.enter(|| Server::start_at(SERVER, command, memory_mb))?;
        let address = server.address();
        Self { client, address, processes: vec![Process::Server(server)], _socket: None }.stopped()
    }

    /// gnomon, with a worker to each of two queues where the machine has two CPUs and the driver two queues.
    ///
    /// # Errors
    /// The namespaces', or gnomon does not start.
    pub(super) fn gnomon(
        program: &Path,
        kind: Kind,
        tcp: Tcp,
        memory_mb: u64,
        connections: usize,
    ) -> io::Result<Self> {
        let (client, far) = (Namespace::new()?, Namespace::new()?);
        let mut cpus = cpus()?;
        // Where both ends of the memif look for it.
        let path = std::env::temp_dir().join(format!("gnomon-{}-{tcp:?}.sock", process::id()));
        let memif = format!("id=0,socket={},socket-abstract=no", path.display());
        let socket = (kind == Kind::Memif).then(|| SocketFile::at(path));
        let port = match kind {
            Kind::NetTap => "net_tap0,iface=wire1".to_owned(),
            Kind::AfPacket => {
                veth(&client, &far)?;
                // Nothing but the worker answers.
                for rule in [
                    "table netdev gnomon",
                    "chain netdev gnomon ingress { type filter hook ingress device wire0 priority 0; policy drop; }",
                ] {
                    far.command(&format!("nft add {rule}"))?;
                }
                format!("net_af_packet0,iface=wire0,qpairs={}", cpus.len())
            }
            Kind::Memif => {
                cpus.truncate(1);
                format!("net_memif0,role=server,mac=02:00:00:00:77:01,{memif}")
            }
        };
        let cores: Vec<_> = cpus.iter().map(usize::to_string).collect();
        let tcp = format!("{tcp:?}").to_lowercase();
        let mut serve = Command::new(program);
        serve.args(["serve", "--json", "--port", &port, "--ip", &format!("{SERVER}/24")]);
        serve.args(["--cores", &cores.join(","), "--tcp", &tcp, "-m", &memory_mb.to_string()]);
        serve.args(["-c", &(connections + CONNECTIONS_MORE).to_string()]);
        serve.args(["--exception-rate", &EXCEPTION_RATE.to_string()]);
        let mut server = Program::start(&far, serve.stdout(Stdio::piped()))?;
        server.ready()?;
        let mut processes = vec![Process::Program(server)];
        match kind {
            Kind::NetTap => {
                far.command(&format!("ip link set wire1 netns {}", client.path()))?;
            }
            Kind::AfPacket => {}
            Kind::Memif => {
                let mut testpmd = Command::new("nice");
                testpmd.args([
                    "-n",
                    "5",
                    "dpdk-testpmd",
                    "--no-huge",
                    "-m",
                    "256",
                    "--no-shconf",
                    "--no-pci",
                ]);
                testpmd.args(["--vdev", &format!("net_memif0,role=client,{memif}")]);
                testpmd.args(["--vdev", "net_tap0,iface=wire1", "--", "--forward-mode=io"]);
                testpmd.args(["--auto-start", "--total-num-mbufs=16384"]);
                // It runs until its standard input ends.
                testpmd.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
                let mut testpmd = Program::start(&client, &mut testpmd)?;
                testpmd.makes_device(&client)?;
                processes.push(Process::Program(testpmd));
            }
        }
        if kind != Kind::AfPacket {
            // Both ends of a TAP device have one address until one of them takes another.
            client.command("ip link set wire1 address 02:00:00:00:77:02 up")?;
            client.command(&format!("ip addr add {CLIENT}/24 dev wire1"))?;
        }
        Self { client, address: (SERVER, PORT).into(), processes, _socket: socket }.stopped()
    }

    fn stopped(self) -> io::Result<Self> {
        self.signal(Signal::SIGSTOP)?;
        Ok(self)
    }

    /// Where the server listens, in the client's namespace.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The server's.
    pub(super) fn process(&self) -> u32 {
        self.processes.first().map_or(0, Process::id)
    }

    /// Work in the client's namespace ([`Namespace::enter`]).
    ///
    /// # Errors
    /// The work's.
    pub(super) fn enter<R: Send>(
        &self,
        work: impl FnOnce() -> io::Result<R> + Send,
    ) -> io::Result<R> {
        self.client.enter(work)
    }

    /// Work while the server runs.
    ///
    /// # Errors
    /// The work's.
    pub(super) fn running<R>(&self, work: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        self.signal(Signal::SIGCONT)?;
        let done = work();
        self.signal(Signal::SIGSTOP)?;
        done
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        for process in &self.processes {
            kill(Pid::from_raw(process.id().cast_signed()), signal)?;
        }
        Ok(())
    }
}

impl Process {
    fn id(&self) -> u32 {
        match self {
            Self::Server(server) => server.process(),
            Self::Program(program) => program.0.id(),
        }
    }
}

impl Program {
    fn start(namespace: &Namespace, command: &mut Command) -> io::Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let started = namespace.enter(|| Running::start(command));
        started.map(Self).map_err(|e| io::Error::new(e.kind(), format!("`{name}`: {e}")))
    }

    /// Waits for the line that gnomon prints when it serves. What it has to say else is on standard error.
    fn ready(&mut self) -> io::Result<()> {
        let out = self.0.stdout().ok_or(ErrorKind::BrokenPipe)?;
        let (begun, mut line) = (Instant::now(), Vec::new());
        while !line.contains(&b'\n') {
            let left = START_MAX.saturating_sub(begun.elapsed());
            let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
            if poll(&mut [PollFd::new(out.as_fd(), PollFlags::POLLIN)], left)? == 0 {
                return Err(io::Error::new(ErrorKind::TimedOut, "gnomon does not get ready"));
            }
            let mut some = [0; 4096];
            match out.read(&mut some)? {
                0 => return Err(io::Error::other("gnomon ended instead of serving")),
                n => line.extend_from_slice(some.get(..n).unwrap_or_default()),
            }
        }
        Ok(())
    }

    /// Waits for the client's device of this program's making.
    fn makes_device(&mut self, client: &Namespace) -> io::Result<()> {
        let begun = Instant::now();
        while let Err(e) = client.command("ip link show wire1") {
            let ended = self.0.try_wait()?;
            // What `nice` says of a program that it does not find.
            if ended.and_then(|status| status.code()) == Some(127) {
                return Err(io::Error::other(
                    "there is no dpdk-testpmd: Debian's package `dpdk` has it",
                ));
            }
            if ended.is_some() || begun.elapsed() > START_MAX {
                return Err(io::Error::other(format!("dpdk-testpmd makes no TAP device: {e}")));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }
}

/// A cable, `wire1` at the client's end, with its address, `wire0` at the other; whole segments of the link's size and
/// checksums in them, as on a wire.
fn veth(client: &Namespace, far: &Namespace) -> io::Result<()> {
    let queues = "numtxqueues 2 numrxqueues 2";
    far.command(&format!(
        "ip link add wire0 {queues} type veth peer name wire1 {queues} netns {}",
        client.path()
    ))?;
    for (end, device) in [(far, "wire0"), (client, "wire1")] {
        end.command(&format!("ethtool -K {device} tx off gro off gso off tso off"))?;
        end.command(&format!("ip link set {device} up"))?;
    }
    client.command(&format!("ip addr add {CLIENT}/24 dev wire1"))
}

/// Two CPUs that this process may use, or its only one.
fn cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    let mut cpus: Vec<_> =
        (0..CpuSet::count()).filter(|n| set.is_set(*n).unwrap_or(false)).collect();
    cpus.truncate(2);
    Ok(cpus)
}
