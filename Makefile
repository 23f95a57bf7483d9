# Three words that scripts rely on: up, check, test. `scripts/` does the work; this names it.
SHELL := /bin/bash
.PHONY: up down check test soak packages tarball bench bench-record build fmt help

help:
	@echo "make up      install what is missing, build, start a cluster on this machine"
	@echo "make down    stop it"
	@echo "make check   format, lints, unit and property tests: no root, no network"
	@echo "make test    install what is missing and run every test"
	@echo "make soak    the long runs: 10,000 histories of random faults and as many of machines on demand, an hour of random clients and a rogue node, fifty hosts of a fleet, PyTorch over three, 200 jobs in three spot storms, the packages with an older C library; MINUTES=N for another time"
	@echo "make packages  .deb files, an archive for machines with glibc 2.28 or later, and an image, in target/packages"
	@echo "make tarball   the archive alone, installed and run in a Debian with an older C library"
	@echo "make bench   Sluice beside a real Slurm and a real dstack server, as tables of ratios; bench-record keeps it in SPECIFICATION.md"

build:
	@scripts/install build
	@scripts/progress "building" cargo build --release --locked -p sluice

up: build
	@scripts/up

down:
	@target/release/sluice down

check:
	@scripts/check

test:
	@scripts/install test
	@scripts/check
	@scripts/test

soak:
	@scripts/install soak
	@scripts/soak

packages:
	@scripts/install packages
	@scripts/packages

tarball:
	@scripts/install packages
	@scripts/tarball

bench:
	@scripts/install build
	@scripts/bench

bench-record:
	@scripts/install build
	@scripts/bench record

fmt:
	@cargo fmt --all
