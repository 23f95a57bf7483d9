//! The domain's types and their grammars. No I/O, no clock, no randomness.
//!
//! A job passes through four types: `Request` (asked) → `Allocation` (granted) → `Limits` (enforced) → `Usage` (used).
//!
//! - `values/`: amounts, times, names, sets of CPUs and hosts, each with its grammar.
//! - `job/`: requests, runs, jobs, arrays, steps and attempts; dependencies, reasons for waiting, changes.
//! - `nodes/`: nodes, partitions, fleets, topology, reservations, the site's programs.
//! - `accounting/`: accounts, QOS, TRES, priority, preemption, the books' record.
//! - `enforcement/`: allocation, limits, devices, CPU binding, usage.
//! - `bounds`: how much users, jobs and nodes may send.
//!
//! Users name a module without its folder: `model::amount`, `model::request`.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod accounting;
pub mod bounds;
mod enforcement;
mod job;
mod nodes;
mod values;

pub use accounting::{
    account, activity, budget, deleted, outage, preempt, priority, private_data, project, qos,
    raw_usage, record, tres, usage_report,
};
pub use enforcement::{allocation, binding, cpu_frequency, limits, load, usage};
pub use job::{
    array, attempt, change, constraint, container, dependency, gpu, gpu_model, gres, interpolation,
    machine_choice, mail, pod, port_forward, publication, reason, replica_group, request, run,
    service, shortage, step, streams,
};
pub use nodes::{
    backend, cloud_fleet, cloud_source, cloud_volume, dynamic_node, fleet, gpu_health, gpu_series,
    health, machine, node, node_reason, partition, pod_source, power, reservation,
    reservation_request, select, site, ssh_fleet, topology, trigger, volume,
};
pub use values::{
    amount, cpuset, cron, filename, grammar, hostlist, id, ip_network, listening_socket,
    metadata_address, month, os_text, price, principal, printable, range, search_path, secret,
    shell, time, time_spec,
};
