//! What a node enforces around a job, through the built program: devices, memory, scratch folders, prolog and epilog, logins.

#[path = "../harness/mod.rs"]
mod harness;

mod apptainer;
mod bad_images;
mod cdi;
mod container_attach;
mod container_attacks;
mod container_disk;
mod container_networks;
mod container_processes;
mod containers;
mod cpu_frequency;
mod devices;
mod engines;
mod enroot;
mod examples;
mod gpu_files;
mod gpu_health;
mod hardware;
mod health;
mod hostile_jobs;
mod memory;
mod missing_cgroups;
mod named_containers;
mod private_images;
mod privileged;
mod prolog;
mod prolog_flags;
mod prolog_interrupted;
mod registry;
mod scratch;
mod scratch_full;
mod shared_folders;
mod ssh;
mod termination_reasons;
mod unkillable;
mod vm;
mod volumes;
