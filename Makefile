# make demo and make test are all that a newcomer needs; make help lists the rest.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

TARGET_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))
# Named, because +crt-static would otherwise reach procedural macros too, which cannot be static.
HOST_TRIPLE := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
BIN := $(TARGET_DIR)/$(HOST_TRIPLE)/release
PROGRAMS := gridcast gridcast-agent gridcast-starter gridcast-csi gridcast-operator
DEMO := target/demo
PREFIX ?= /usr/local
PYTHON ?= /usr/bin/python3

phase = @printf '\n== %(%H:%M:%S)T  %s\n' -1 '$(1)'

## demo: install what is missing, build, and run the ring example on four nodes
demo: root deps build examples $(DEMO)/ics
	$(call phase,run examples/ring.yaml)
	$(BIN)/gridcast local run -f examples/ring.yaml --topology examples/ring-topology.yaml \
	    --volume ics=$(DEMO)/ics --report $(DEMO)/report.json
	$(BIN)/gridcast report $(DEMO)/report.json --html $(DEMO)/report.html > $(DEMO)/report.txt
	@echo "The report: $(DEMO)/report.json, as a page: $(DEMO)/report.html"

## demo-16: the ring example on sixteen nodes with links of 100 Mbit/s
demo-16: root deps build examples $(DEMO)/ics
	$(call phase,run examples/ring-16.yaml)
	$(BIN)/gridcast local run -f examples/ring-16.yaml --topology examples/ring-16-topology.yaml \
	    --volume ics=$(DEMO)/ics --report $(DEMO)/report-16.json

## demo-sedov: the Sedov blast on four nodes; its output is brought home and plotted
demo-sedov: root deps deps-plot build examples
	$(call phase,run examples/sedov.yaml)
	rm -rf $(DEMO)/sedov
	mkdir -p $(DEMO)/sedov
	$(BIN)/gridcast local run -f examples/sedov.yaml --volume programs=examples/sedov --volume results=$(DEMO)/sedov \
	    --report $(DEMO)/report-sedov.json
	PYTHONDONTWRITEBYTECODE=1 $(PYTHON) examples/sedov/plot.py $(DEMO)/sedov/output_00002 $(DEMO)/sedov.png
	@echo "The plot: $(DEMO)/sedov.png"

## test: format, lints, all tests, the examples' checks, the documents' commands
test: root deps build examples $(DEMO)/ics
	$(call phase,format)
	cargo fmt --all --check
	@echo "ok format"
	$(call phase,lints)
	cargo clippy --workspace --all-targets --locked -- -D warnings
	@echo "ok lints"
	$(call phase,tests of the crates)
	cargo test --workspace --locked --no-fail-fast
	$(call phase,checks of the examples)
	examples/ring/check
	examples/sedov/check
	$(call phase,checks of the repository)
	tests/repository
	$(call phase,what the chart renders)
	$(PYTHON) tests/chart
	$(call phase,commands of the documents)
	tests/docs-commands $(BIN)

## build: the release programs, static, and links to them in target/bin
build: deps
	$(call phase,build)
	RUSTFLAGS="$${RUSTFLAGS:-} -C target-feature=+crt-static" \
	    cargo build --release --locked --workspace --bins --target $(HOST_TRIPLE)
	@mkdir -p target/bin
	@for program in $(PROGRAMS); do ln -sfn "$(BIN)/$$program" target/bin/; done
	@ln -sfn gridcast target/bin/kubectl-gridcast

## install: copy the programs to PREFIX/bin (default /usr/local)
install: build
	install -d $(DESTDIR)$(PREFIX)/bin
	install $(addprefix $(BIN)/,$(PROGRAMS)) $(DESTDIR)$(PREFIX)/bin
	ln -sfn gridcast $(DESTDIR)$(PREFIX)/bin/kubectl-gridcast

## examples: the example programs
examples: deps
	$(call phase,example programs)
	$(MAKE) --no-print-directory -C examples/ring
	$(MAKE) --no-print-directory -C examples/sedov

$(DEMO)/ics: | examples
	@mkdir -p $(DEMO)
	rm -rf $@.partial
	examples/ring/make-dataset $@

## crds: write the YAML of the API from the Rust types, for kubectl and for the chart; the operator's role for the chart
crds:
	cargo run -q --locked -p gridcast-crds --example generate
	cp crds/*.yaml charts/gridcast/files/crds/
	cp operator/role.yaml charts/gridcast/files/operator-role.yaml

## images: container images of the operator, the agent and MPI nodes, in target/images (no container engine needed)
images: root deps deps-images build examples
	$(call phase,images)
	set -e; for image in operator agent node-openmpi node-mpich; do images/build $$image; done

## e2e: a real Kubernetes of three nodes here, the chart installed in it, the core scenarios (Go 1.26 needed)
e2e: e2e-ready
	$(call phase,scenarios)
	tests/e2e/e2e

## e2e-full: the long scenarios as well (about an hour)
e2e-full: e2e-ready
	$(call phase,scenarios)
	tests/e2e/e2e --full

# Kubernetes takes longest to build, so it begins first; cargo shares the cores with it.
e2e-ready: root deps deps-e2e
	$(call phase,build Kubernetes; its log: target/e2e/build.log)
	mkdir -p target/e2e
	tests/e2e/lab/build > target/e2e/build.log 2>&1 & kubernetes=$$!; \
	$(MAKE) --no-print-directory images || { kill $$kubernetes; exit 1; }; \
	images/build pause; images/build busybox; \
	wait $$kubernetes || { tail -n 20 target/e2e/build.log >&2; exit 1; }
	tail -n 1 target/e2e/build.log

## clean-e2e: end a cluster that `make e2e` left, and remove its state
clean-e2e: root
	tests/e2e/lab/down --purge

## deps: install the Debian packages that are missing
# What is looked for, and the package that has it.
NEEDS := /usr/bin/gcc:gcc /usr/include/stdio.h:libc6-dev /usr/bin/make:make /usr/bin/gfortran:gfortran \
    /usr/bin/mpirun.openmpi:openmpi-bin /usr/lib/$(shell uname -m)-linux-gnu/openmpi/include/mpi.h:libopenmpi-dev \
    /usr/bin/mpiexec.mpich:mpich /usr/bin/python3:python3 $(shell $(PYTHON) -c 'import sys; print(f"/usr/lib/python3.{sys.version_info[1]}/ensurepip/__init__.py")' 2>/dev/null || echo /usr/lib/python3/ensurepip):python3-venv \
    /usr/bin/ps:procps
deps:
	@command -v cargo > /dev/null || { echo "cargo is missing: install Rust from https://rustup.rs" >&2; exit 1; }
	@$(call install_missing,$(NEEDS))

IMAGE_NEEDS := /usr/sbin/debootstrap:debootstrap /usr/bin/mpicc.mpich:libmpich-dev /usr/bin/mpiexec.mpich:mpich
deps-images: deps
	@$(call install_missing,$(IMAGE_NEEDS))

E2E_NEEDS := /usr/bin/containerd:containerd /usr/sbin/runc:runc /usr/lib/cni/bridge:containernetworking-plugins \
    /usr/sbin/nft:nftables /usr/sbin/iptables:iptables /usr/sbin/conntrack:conntrack /bin/busybox:busybox-static \
    /usr/bin/openssl:openssl /usr/sbin/ip:iproute2 /usr/bin/unshare:util-linux
deps-e2e: deps
	@command -v go > /dev/null || { echo "go is missing: install Go 1.26 or newer from https://go.dev/doc/install" >&2; exit 1; }
	@$(call install_missing,$(E2E_NEEDS))

deps-plot: deps
	@$(PYTHON) -c 'import matplotlib' 2> /dev/null || { $(call apt_install,python3-matplotlib); }

apt_install = if [ "$$(id -u)" != 0 ]; then echo "missing packages; install them with: sudo apt-get install $(1)" >&2; exit 1; fi; \
    echo "installing: $(1)"; export DEBIAN_FRONTEND=noninteractive; apt-get update -qq; \
    apt-get install -y -qq --no-install-recommends $(1) > /dev/null
install_missing = packages=""; for need in $(1); do [ -e "$${need%%:*}" ] || packages="$$packages $${need\#*:}"; done; \
    if [ -n "$$packages" ]; then $(call apt_install,$$packages); fi

# Network namespaces, mounts and interfaces are root's.
root:
	@[ "$$(id -u)" = 0 ] || { echo "this makes network namespaces and mounts: run it as root" >&2; exit 1; }

## figures: measure the README's figures again and print them as a table (about ten minutes)
figures: root deps build examples $(DEMO)/ics
	$(call phase,figures)
	tests/figures

## clean-demo: remove the demo's dataset, reports and results
clean-demo:
	rm -rf $(DEMO)

## help: this list
help:
	@sed -n 's/^## \([a-z0-9-]*\): /\1\t/p' $(firstword $(MAKEFILE_LIST)) | awk -F'\t' '{ printf "make %-12s %s\n", $$1, $$2 }'

.PHONY: demo demo-16 demo-sedov test build install examples crds images e2e e2e-full e2e-ready clean-e2e deps deps-images deps-e2e \
    deps-plot figures root clean-demo help
