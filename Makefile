# The names of what `scripts/` does; `make` alone lists them. Other scripts rely on up, check and test.
SHELL := /bin/bash
.PHONY: up down check test soak packages tarball bench bench-record build fmt help

help:
	@echo "make up            install what is missing, build, start a cluster on this machine"
	@echo "make down          stop it; running jobs go on"
	@echo "make check         format, lints, unit and property tests: no root, no network"
	@echo "make test          install what is missing and run every test"
	@echo "make soak          the long runs, as root; MINUTES=N for another time of the random clients than 60"
	@echo "make bench         Sluice beside a real Slurm and a real dstack server, as tables"
	@echo "make bench-record  the same, and keep the tables in SPECIFICATION.md"
	@echo "make packages      .deb files, an archive for glibc 2.28 or later and an image, in target/packages"
	@echo "make tarball       the archive alone, installed and run in a Debian with an older C library"
	@echo "make build         a release build of the program, target/release/sluice"
	@echo "make fmt           format the code"

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
