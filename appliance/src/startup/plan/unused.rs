//! What was given and changes nothing here.

use super::{PortPlan, TcpPlan};
use crate::startup::flags::{Energy, Extended, FileMask, PortSpec, ServeFlags, Ssl};
use dataplane::stages::exits::exception_path::RATE_PPS_DEFAULT;

/// Each as it was typed, with the reason where the flag has an effect otherwise.
pub(super) fn unused(flags: &ServeFlags, ports: &[PortPlan], tcp: &[TcpPlan]) -> Vec<String> {
    let clients = &flags.clients;
    let with_unix = clients.unix_socket.is_some();
    let large_pages = flags.process.enable_largepages.then(|| "-L".to_owned());
    let options = clients.options().filter_map(|o| match o {
        Extended::Unused(typed) => Some(format!("-o {typed}")),
        Extended::Ssl(Ssl::KernelTls) => Some("-o ssl_kernel_tls".to_owned()),
        Extended::Ssl(Ssl::WbufSize(n)) => Some(format!("-o ssl_wbuf_size={n}")),
        Extended::MaxconnsFast(_)
        | Extended::LruCrawler(_)
        | Extended::NoModern
        | Extended::Ssl(_)
        | Extended::IdleTimeout(_) => None,
    });
    let tls = clients.options().any(
        |o| matches!(o, Extended::Ssl(ssl) if !matches!(ssl, Ssl::KernelTls | Ssl::WbufSize(_))),
    );
    let tls = (tls && !clients.enable_ssl).then(|| "-o ssl_… without -Z".to_owned());
    let napi_ids = clients.napi_ids.map(|n| format!("-N {n}"));
    let tags = flags.listening().filter_map(|l| l.tag.as_ref().map(|t| format!("-l tag[{t}]")));
    let mask =
        (clients.unix_mask != FileMask::DEFAULT && !with_unix).then(|| "-a without -s".to_owned());
    let threads = (flags.threads != ServeFlags::THREADS_DEFAULT && tcp.is_empty() && !with_unix)
        .then(|| format!("-t {} without TCP in the kernel", flags.threads));
    let has_tap = ports.iter().any(|port| port.exception_path.is_some());
    let exception_rate = (flags.exception_rate != RATE_PPS_DEFAULT && !has_tap)
        .then(|| "--exception-rate without --side-door".to_owned());
    let watts = flags.base_watts.and_then(|_| match (&flags.metrics, flags.energy) {
        (None, _) => Some("--base-watts without --metrics".to_owned()),
        (Some(_), Energy::Off) => Some("--base-watts with --energy off".to_owned()),
        (Some(_), Energy::Report | Energy::Manage) => None,
    });
    let has_nic = flags.port.iter().any(|port| matches!(port, PortSpec::Pci { .. }));
    let manage = (flags.energy == Energy::Manage && !has_nic)
        .then(|| "--energy manage without a NIC in --port".to_owned());
    let before = large_pages.into_iter().chain(napi_ids).chain(tags);
    let flags = [tls, mask, threads, exception_rate, watts, manage];
    before.chain(options).chain(flags.into_iter().flatten()).collect()
}
