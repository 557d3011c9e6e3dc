//! The clock, and the CPUs that will poll.

use super::host::{cpu_list, cpu_text};
use super::{Finding, Host, Wants};
use std::collections::BTreeSet;

pub(super) fn check(host: &Host, wants: &Wants) -> Vec<Finding> {
    let mut findings = vec![clock(host)];
    // Workers on kernel sockets sleep when there is nothing to do.
    if !wants.nics.is_empty() && !wants.worker_cpus.is_empty() {
        findings.push(isolated(host, wants));
        findings.push(governor(host, wants));
        findings.extend(first_cpu(wants));
        findings.extend(siblings(host, wants));
    }
    findings
}

/// Each burst reads the clock; anything but the TSC makes that a system call or worse.
fn clock(host: &Host) -> Finding {
    const WHAT: &str = "clock";
    const FILE: &str = "sys/devices/system/clocksource/clocksource0/current_clocksource";
    let cpuinfo = host.read("proc/cpuinfo").unwrap_or_default();
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let steady = ["constant_tsc", "nonstop_tsc"].iter().all(|flag| flags.contains(flag));
    let source = host.read(FILE);
    match source.as_deref() {
        // Paravirtual clocks are read without a system call, as the TSC is.
        Some("tsc" | "kvm-clock" | "arch_sys_counter" | "hyperv_clocksource_tsc_page") => {
            Finding::pass(WHAT, source.unwrap_or_default())
        }
        Some(other) if steady => Finding::warn(
            WHAT,
            format!("{other}, although the TSC is steady"),
            format!("echo tsc > /{FILE}"),
        ),
        Some(other) => Finding::warn(
            WHAT,
            format!("{other}; this processor has no steady TSC"),
            "another machine: each burst of packets reads the clock",
        ),
        None => Finding::pass(WHAT, "its source cannot be read"),
    }
}

fn isolated(host: &Host, wants: &Wants) -> Finding {
    const WHAT: &str = "workers' CPUs, isolation";
    let apart = cpu_list(&host.read("sys/devices/system/cpu/isolated").unwrap_or_default());
    let shared: Vec<usize> =
        wants.worker_cpus.iter().copied().filter(|cpu| !apart.contains(cpu)).collect();
    if shared.is_empty() {
        return Finding::pass(WHAT, "all of them");
    }
    let cpus = cpu_text(wants.worker_cpus.iter().copied());
    Finding::warn(
        WHAT,
        format!("{} also run whatever else there is", cpu_text(shared)),
        format!("kernel command line: isolcpus={cpus} nohz_full={cpus} rcu_nocbs={cpus}"),
    )
}

fn governor(host: &Host, wants: &Wants) -> Finding {
    const WHAT: &str = "workers' CPUs, governor";
    let slow: BTreeSet<String> = wants
        .worker_cpus
        .iter()
        .filter_map(|cpu| {
            host.read(format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"))
        })
        .filter(|governor| governor != "performance")
        .collect();
    if slow.is_empty() {
        return Finding::pass(WHAT, "performance, or none to choose");
    }
    let names = slow.into_iter().collect::<Vec<_>>().join(", ");
    let cpus = cpu_text(wants.worker_cpus.iter().copied());
    Finding::warn(WHAT, names, format!("cpupower -c {cpus} frequency-set -g performance"))
}

fn first_cpu(wants: &Wants) -> Option<Finding> {
    wants.worker_cpus.contains(&0).then(|| {
        Finding::warn(
            "workers' CPUs, CPU 0",
            "serves packets, and most of the kernel's interrupts",
            "--cores without 0",
        )
    })
}

/// Two workers on one core are less than two.
fn siblings(host: &Host, wants: &Wants) -> Option<Finding> {
    let pairs: Vec<String> = wants
        .worker_cpus
        .iter()
        .filter_map(|cpu| {
            let file = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            let core = cpu_list(&host.read(file)?);
            let workers: Vec<usize> =
                core.into_iter().filter(|c| wants.worker_cpus.contains(c)).collect();
            (workers.len() > 1 && workers.first() == Some(cpu)).then(|| cpu_text(workers))
        })
        .collect();
    (!pairs.is_empty()).then(|| {
        Finding::warn(
            "workers' CPUs, cores",
            format!("{} share a core", pairs.join(" and ")),
            "--cores with one thread of each core, or SMT off",
        )
    })
}
