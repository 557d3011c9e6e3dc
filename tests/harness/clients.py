"""Clients that are built for a test."""


def rust_client(check, scratch, *features):
    """The client that reads one-sided. Tests that want different features run side by side."""
    made = 'cargo build -q -p gnomon-client "$@" --example reads && cp target/debug/examples/reads'
    made = f"(flock 9 && {made} '{scratch}/rust-client') 9>target/rust-client.lock"
    check.runs("the Rust client is made", "bash", "-c", made, "bash", *features)
    return scratch / "rust-client"


def c_client(check, scratch, name="client"):
    """A program of tests/e2e/rdma, with libibverbs."""
    flags = ("-O2", "-Wall", "-Wextra", "-Werror", "-o", scratch / name)
    check.runs(f"the {name} is made", "cc", *flags, f"tests/e2e/rdma/{name}.c", "-libverbs", "-lz")
    return scratch / name
