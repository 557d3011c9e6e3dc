use super::*;
use std::collections::BTreeSet;

const PAGE: &str = include_str!("../../../../docs/metrics.md");

/// What memcached_exporter calls a counter although its name ends otherwise.
const ODD_COUNTERS: [&str; 5] = [
    "memcached_uptime_seconds",
    "memcached_slab_items_evicted_time_seconds",
    "memcached_slab_items_moves_to_cold",
    "memcached_slab_items_moves_to_warm",
    "memcached_slab_items_moves_within_lru",
];

#[test]
fn the_page_about_metrics_is_made_from_the_code() {
    assert!(PAGE == reference(), "make it anew: gnomon stats --list >docs/metrics.md");
}

#[test]
fn names_follow_the_rules() {
    let mut names = BTreeSet::new();
    for family in families() {
        let (name, total) = (family.name, family.name.ends_with("_total"));
        assert!(names.insert(name), "{name} is there twice");
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'));
        assert!(name.starts_with("gnomon_") || name.starts_with("memcached_"), "{name}");
        assert_eq!(total, family.kind == Kind::Counter && !ODD_COUNTERS.contains(&name), "{name}");
        assert!(family.help.ends_with(['.', '1', '0']) || family.help.ends_with("`."), "{name}");
        assert!(!family.help.contains(['\n', '\\', '|']), "{name}");
        assert!(!family.labels.contains(&"le") && !family.labels.contains(&"job"), "{name}");
    }
}

#[test]
fn samples_of_one_name() {
    let page = "# HELP a x\na 5\na_b 6\nc{x=\"1\"} 7\nc{x=\"2\"} 8\n";
    assert_eq!(samples(page, "a"), "5\n");
    assert_eq!(samples(page, "c"), "c{x=\"1\"} 7\nc{x=\"2\"} 8\n");
    assert_eq!(samples(page, "d"), "");
    assert_eq!(samples(page, "# HELP"), "");
    let page = "gnomon_request_duration_seconds_bucket{le=\"1\"} 2\ngnomon_request_duration_seconds_count 3\nd 1\n";
    assert_eq!(samples(page, "gnomon_request_duration_seconds").lines().count(), 2);
    assert_eq!(samples(page, "gnomon_request_duration_seconds_count"), "3\n");
}
