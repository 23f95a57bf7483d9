//! The daemons of `up` answer while the jobs of their own machine want every CPU.

/// The nice value of a daemon's session, from -20 to 19: nearly ten times the share of one at 0.
const NICE: &str = "-10";

/// Gives this session more of the CPUs than one of a job gets. The kernel shares them between sessions (`man 7 sched`, autogroups),
/// each supervisor and each job has a session of its own, and without it a server beside a hundred that start gets a hundredth. The
/// nice value of a process is left alone: jobs would inherit it. Who is not root, or has a kernel without such groups, goes on
/// without; the units of the packages say `CPUWeight` instead.
///
/// Called between fork and exec: it opens and writes one file, and takes no lock.
pub fn raise() {
    let _ = std::fs::write("/proc/self/autogroup", NICE);
}
