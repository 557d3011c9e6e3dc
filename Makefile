# Thin on purpose: one line to a script each. `make` lists the targets.
.DEFAULT_GOAL := help
.PHONY: help demo test quick lint deny ptx unit loom instructions e2e hostile soak boot-test image bench papers gpu-check fuzz docs dist oci newcomer clean

help:   ## this list
	@sed -n 's/^\([a-z0-9-]*\): *## /  make \1	/p' $(MAKEFILE_LIST)
demo:   ## build, boot the appliance on a DPDK port, replay a workload, verify every reply
	@scripts/demo.sh
test:   ## everything that CI runs
	@scripts/test.sh dist containers lint ptx unit kernels instructions e2e demo debian13 loom fuzz deny docs bundle boot
quick:  ## format, lints, structure, documentation, unit tests: under 3 minutes on a warm tree
	@scripts/test.sh lint docs unit
lint:   ## format, clippy, structure and script checks
	@scripts/test.sh lint
deny:   ## licences, sources, versions and known vulnerabilities of the crates
	@scripts/test.sh deny
ptx:    ## the committed PTX is what the kernels' sources make, and spills nothing
	@scripts/test.sh ptx
unit:   ## cargo test, every crate; manual pages and completions
	@scripts/test.sh unit
loom:   ## every interleaving of the lock-free parts
	@scripts/test.sh loom
instructions: ## of the data plane per request, against the budget
	@scripts/test.sh instructions
e2e:    ## real clients against a live server, in network namespaces
	@scripts/test.sh e2e
hostile: ## every attack at full size beside honest clients: an hour; CI runs them small
	@scripts/e2e.sh hostile --whole --file-seconds 0
boot-test: ## the image in QEMU, a NIC under vfio-pci, a client at its other end (NIC=all, DISK=1)
	@NIC=$(NIC) DISK=$(DISK) scripts/test.sh boot
image:  ## target/image/: a disk image (qcow2, raw) that boots to serving, its kernel and initrd
	@cargo build --release -q --bin gnomon && scripts/image.sh
soak:   ## a live appliance under a mixed load for SOAK_MINUTES (default 10) on each of two ports
	@scripts/soak.sh
bench:  ## beside the commit before, the memory and memcached, in one run
	@scripts/bench.sh
papers: ## every command of docs/papers.md at full size: one page, target/papers/README.md
	@scripts/bench.sh papers
gpu-check: ## target/gpu-check/: what a machine with a GPU runs to check and measure it
	@scripts/gpu_check.sh
fuzz:   ## each fuzz target for FUZZ_SECONDS (default 60)
	@scripts/fuzz.sh
docs:   ## the API documentation, warnings refused
	@scripts/test.sh docs
dist:   ## target/dist/: a Debian package, and an archive that runs where it is unpacked
	@scripts/dist.sh
oci:    ## target/dist/: a container image, from the archive; needs no daemon
	@scripts/dist.sh && scripts/oci.sh
newcomer: ## README.md's and the quickstart's commands, typed into fresh Debian roots
	@scripts/newcomer.sh
clean:  ## remove what was built
	@cargo clean
