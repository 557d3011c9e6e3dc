//! `gnomon`: a kernel-bypass, memcached-compatible key-value appliance.

use appliance::host::affinity;
use appliance::host::bind::{self, BindError, Bound};
use appliance::host::check::{self, CheckReport, Host, Wants};
use appliance::host::machine::{self, Machine};
use appliance::host::pci::PciAddress;
use appliance::observe::{capture, report, terminal};
use appliance::process::output::{self, Log};
use appliance::process::pid_file::PidFile;
use appliance::process::privileges::{self, Identity};
use appliance::process::sandbox::{self, Needs};
use appliance::process::{allocator, daemon, log, service, signals};
use appliance::serve::credentials::Credentials;
use appliance::serve::sockets::{self, SocketError};
use appliance::serve::tls::Certificates;
use appliance::startup::flags::{Asked, Cli, Command, Energy, ServeFlags};
use appliance::startup::plan::Plan;
use appliance::startup::topology::Prepared;
use appliance::startup::{pages, run, topology};
use std::error::Error;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    allocator::share_heap_if_bounded();
    // Before any thread, and long before the driver reads it.
    #[cfg(feature = "cuda")]
    gpu::cuda::set_environment();
    let asked = match Cli::from_args() {
        Ok(Asked::Do { command, notes }) => {
            notes.iter().for_each(|note| complain(format_args!("gnomon: {note}\n")));
            command
        }
        Ok(Asked::Print(text)) => return printed(text.as_bytes()),
        Err(error) => {
            complain(format_args!("gnomon: {error}\n"));
            return ExitCode::FAILURE;
        }
    };
    let done = match asked {
        Command::Serve(mut flags) => {
            if flags.process.daemon && service::watches() {
                complain(format_args!(
                    "gnomon: -d has no effect under a service manager, which waits for this process\n"
                ));
                flags.process.daemon = false;
            }
            if flags.process.daemon && !flags.dry_run && !daemon::is_detached() {
                return daemon::detach().unwrap_or_else(|error| {
                    complain(format_args!("gnomon: cannot start in the background: {error}\n"));
                    ExitCode::FAILURE
                });
            }
            serve(&flags)
        }
        Command::Check(flags) => examine(&flags),
        Command::Bind { nic } => tell(&nic, bind::bind(&Host::this(), &nic)),
        Command::Stats(flags) => terminal::stats(&flags),
        Command::Top(flags) => terminal::top(&flags).map(|()| true),
        Command::Capture(flags) => capture::capture(&flags),
        Command::Man { dir: Some(dir), .. } => {
            let made = pages::manual(&dir).map(|()| true);
            made.map_err(|e| format!("{}: {e}", dir.display()).into())
        }
        Command::Man { dir: None, .. } => return printed(pages::reference().as_bytes()),
        Command::Completions { shell } => {
            return printed(&pages::completions(shell));
        }
        Command::Unbind { nic } => tell(&nic, bind::unbind(&Host::this(), &nic)),
    };
    let code = match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            complain(format_args!("gnomon: {error}\n"));
            ExitCode::FAILURE
        }
    };
    output::settle();
    code
}

fn printed(text: &[u8]) -> ExitCode {
    match unless_unread(std::io::stdout().write_all(text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(format_args!("gnomon: {error}\n"));
            ExitCode::FAILURE
        }
    }
}

/// What is wrong with standard output. Who reads no further has seen enough.
fn unless_unread(printed: std::io::Result<()>) -> Result<(), String> {
    match printed {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("standard output: {error}"))
        }
        _ => Ok(()),
    }
}

/// `check`: everything that matters to these flags, and the flags themselves.
fn examine(flags: &ServeFlags) -> Result<bool, Box<dyn Error>> {
    let machine = Machine::observe();
    let mut findings = check::check(&Host::this(), &Wants::new(flags, &machine));
    match Plan::new(flags, &machine) {
        Ok(mut plan) => {
            findings.extend(plan.profile().map(check::profile));
            findings.push(check::flags(named(&plan).map(|_| ())));
            let free = sockets::probe(&plan).and_then(|()| sockets::probe_udp(&mut plan));
            let may_be_ours = free.as_ref().is_err_and(SocketError::is_in_use);
            findings.push(check::addresses(free, may_be_ours));
        }
        Err(error) => findings.push(check::flags(Err(error))),
    }
    let report = CheckReport { findings };
    unless_unread(say(flags.json, &report))?;
    Ok(report.is_good())
}

/// What a plan names that is elsewhere: users, certificates, and whom to become.
type Named = (Option<Credentials>, Option<Certificates>, Option<Identity>);

fn named(plan: &Plan) -> Result<Named, Box<dyn Error>> {
    let credentials = plan.clients.auth_file.as_deref().map(Credentials::load).transpose()?;
    let certificates = plan.tls.as_ref().map(Certificates::load).transpose()?;
    let identity = plan.process.user.as_deref().map(Identity::find).transpose()?.flatten();
    plan.process.pid_file.as_deref().map(PidFile::may_be).transpose()?;
    Ok((credentials, certificates, identity))
}

/// What `bind` or `unbind` did.
fn tell(nic: &PciAddress, done: Result<Bound, BindError>) -> Result<bool, Box<dyn Error>> {
    let line = match done? {
        Bound::Already(driver) => format!("{nic} has {driver} already"),
        Bound::Now(driver) if driver.is_empty() => format!("{nic} has no driver now"),
        Bound::Now(driver) => format!("{nic} has {driver} now"),
    };
    let _ = say(false, &line);
    Ok(true)
}

/// Flags to plan to topology to the end. False when what was received is not accounted for.
fn serve(flags: &ServeFlags) -> Result<bool, Box<dyn Error>> {
    log::begin(flags.verbose);
    allocator::prepare_thread();
    let machine = Machine::observe();
    let asked = Plan::new(flags, &machine)?;
    check::before_start(&Host::this(), &Wants::new(flags, &machine))?;
    let mut plan = asked.clone();
    let process = &asked.process;
    if process.daemon && !flags.dry_run {
        daemon::begin()?;
    }
    let (credentials, certificates, identity) = named(&plan)?;
    if flags.dry_run {
        sockets::probe(&plan)?;
        sockets::probe_udp(&mut plan)?;
        let text = match flags.json {
            true => serde_json::to_string_pretty(&asked)? + "\n",
            false => report::plan_text(&asked),
        };
        unless_unread(std::io::stdout().write_all(text.as_bytes()))?;
        return Ok(true);
    }
    let buffers = usize::try_from(plan.conn_memory_bytes)? / (2 * plan.tcp_threads.max(1));
    allocator::keep_buffers(buffers, usize::try_from(plan.item_max_bytes)? + (1 << 20));
    let prepared =
        Prepared { credentials, certificates, identity, listeners: sockets::listen(&plan)? };
    sockets::probe_udp(&mut plan)?;
    if flags.verbose > 0 {
        complain(format_args!("{}", report::plan_text(&plan)));
    } else {
        plan.notes.iter().for_each(|note| complain(format_args!("gnomon: {note}\n")));
        if !plan.unused.is_empty() {
            complain(format_args!("gnomon: no effect here: {}\n", plan.unused.join(", ")));
        }
    }
    machine::allow_open_files(plan.open_files)
        .map_err(|e| format!("cannot have {} files open: {e}", plan.open_files))?;
    if process.core_dumps {
        privileges::raise_core_limit()?;
    }
    if process.lock_memory {
        privileges::raise_lock_limit();
    }
    let signals = signals::install()?;
    // Divided, each part has its own.
    if let [only] = plan.parts.as_slice()
        && let Some(node) = only.node()
    {
        affinity::prefer_node(node);
    }
    if plan.energy == Energy::Manage {
        affinity::sleep_exactly();
    }
    let built = topology::build(&plan, prepared)?;
    // memcached's words: test programs wait for them behind -vv.
    for address in built.tcp_addresses() {
        tracing::debug!("server listening on TCP {address}");
    }
    for address in built.udp_addresses() {
        tracing::debug!("server listening (udp) on {address}");
    }
    if let Some(unix) = &plan.clients.unix {
        tracing::debug!("server listening on {}", unix.path.display());
    }
    let _pid_file = process.pid_file.as_deref().map(PidFile::write).transpose()?;
    if let Some(path) = std::env::var_os("MEMCACHED_PORT_FILENAME") {
        sockets::write_port_file(path.as_ref(), built.tcp_addresses(), &built.udp_addresses())
            .map_err(|e| format!("cannot write MEMCACHED_PORT_FILENAME {}: {e}", path.display()))?;
    }
    let nowhere = if process.daemon { Some(daemon::leave()?) } else { None };
    let sandbox = match process.sandbox {
        true => sandbox::enter(&Needs::of(&plan, built.driver_dir())),
        false => sandbox::none(),
    };
    output::begin(&plan.cpus_of(plan.control_cpu))
        .map_err(|e| format!("cannot start a thread for output: {e}; raise the limit on threads (ulimit -u, pids.max)"))?;
    if !allocator::recover() {
        return Err("there is no memory left to serve with: lower -m, or raise the limit".into());
    }
    let appliance = built.start(&plan, sandbox)?;
    if process.lock_memory {
        privileges::lock_memory();
    }
    let ready = appliance.ready(&plan);
    // A closed standard output is no reason to stop serving.
    output::say(&line(flags.json, &ready)?);
    if let Some(nowhere) = nowhere {
        // What it has said until now is for the terminal.
        output::settle();
        daemon::settle(&nowhere, flags.verbose > 0)?;
    }
    service::ready(&format!("{ready}"));
    let report = run::serve(appliance, &signals);
    output::say(&line(flags.json, &report)?);
    Ok(report.is_good())
}

/// To standard error. A closed standard error is no reason to end.
fn complain(text: std::fmt::Arguments<'_>) {
    let _ = Log.write_all(text.to_string().as_bytes());
}

/// One line of JSON, or text.
fn say<T: serde::Serialize + std::fmt::Display>(json: bool, what: &T) -> std::io::Result<()> {
    std::io::stdout().write_all(line(json, what)?.as_bytes())
}

fn line<T: serde::Serialize + std::fmt::Display>(json: bool, what: &T) -> std::io::Result<String> {
    Ok(if json { serde_json::to_string(what)? + "\n" } else { format!("{what}\n") })
}
