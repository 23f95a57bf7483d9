//! Binds a single process to CPUs and to NUMA memory, beside what its control group enforces.

use crate::detect::cpu_map::kernel_cpus;
use crate::device_access;
use crate::spool::LaunchRecord;
use crate::supervisor::process::rlimits;
use model::binding::text::BoundTask;
use model::binding::{BindableCpus, MemBind, MemBinding, NodeBindings, bind};
use model::cpuset::CpuSet;
use nix::errno::Errno;
use wire::order::StepOrder;

/// `MPOL_PREFERRED`, `MPOL_BIND` and `MPOL_LOCAL` of the kernel's interface.
const PREFERRED: libc::c_int = 1;
const BIND: libc::c_int = 2;
const LOCAL: libc::c_int = 4;

/// The binding of one process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ProcessBinding<'a> {
    pub cpus: Option<&'a CpuSet>,
    /// The bindings of all tasks of the step, for the report that `--cpu-bind=verbose` asks for.
    pub bound: Option<&'a NodeBindings>,
    pub memory: Option<&'a MemBinding>,
    /// The job communicates over a fabric, whose drivers lock memory.
    pub locks_memory: bool,
    pub node: &'a str,
    pub rank: u32,
    pub local_rank: u32,
}

/// Whether processes of this job communicate over a fabric.
pub(crate) fn locks_memory(record: &LaunchRecord) -> bool {
    record.launch.nodes > 1 && device_access::has_fabric()
}

/// The CPUs that the tasks of a step on this node are bound to; `None` without a binding.
pub(crate) fn step_binding(
    record: &LaunchRecord,
    order: &StepOrder,
) -> Result<Option<NodeBindings>, String> {
    let Some(binding) = &order.cpu_bind else { return Ok(None) };
    let share = order.share.as_ref().unwrap_or(&record.launch.share);
    let places: Vec<_> =
        record.places.iter().filter(|place| share.cpus.contains(place.id)).cloned().collect();
    if places.is_empty() {
        // CPUs that are only counted have no location to bind to.
        return Ok(None);
    }
    let whole = places.len() == record.node_cpus as usize;
    let ground = BindableCpus { places: &places, whole, cpus: record.machine_cpus };
    let tasks = order.tasks.len() as u32;
    let bound = bind(binding, ground, tasks, order.launch.cpus_per_task.unwrap_or(1));
    bound.map(Some).map_err(|refusal| format!("Unable to satisfy cpu bind request: {refusal}"))
}

/// The CPUs of a job's script, for machines where no cpuset group enforces them.
pub(crate) fn script_cpus(record: &LaunchRecord) -> Option<CpuSet> {
    let real = record.launch.bound && !record.places.is_empty();
    real.then(|| kernel_cpus(&record.places))
}

impl ProcessBinding<'_> {
    /// Binds the calling process, and with it all that it will start.
    pub fn take(&self) -> Result<(), String> {
        if let Some(cpus) = self.cpus {
            set_affinity(cpus).map_err(|errno| {
                format!("cannot bind task {} to CPUs {cpus}: {}", self.rank, errno.desc())
            })?;
        }
        if self.locks_memory {
            rlimits::unlock_memory();
        }
        match self.memory {
            Some(memory) => self.bind_memory(memory),
            None => Ok(()),
        }
    }

    fn bind_memory(&self, memory: &MemBinding) -> Result<(), String> {
        let named = memory.named(self.local_rank);
        let (mode, domains) = match (&memory.kind, &named) {
            (Some(MemBind::Local), _) => (LOCAL, None),
            (_, Some(named)) if memory.prefer => (PREFERRED, Some(named)),
            (_, Some(named)) => (BIND, Some(named)),
            (_, None) => return Ok(()),
        };
        set_memory_policy(mode, domains).map_err(|errno| {
            let which = domains.map(ToString::to_string).unwrap_or_default();
            let task = self.local_rank;
            match errno {
                Errno::EINVAL => {
                    format!("NUMA node {which} does not exist; cannot bind local task {task} to it")
                }
                errno => format!("cannot bind the memory of task {task}: {}", errno.desc()),
            }
        })
    }

    /// The reports of the binding that `verbose` asks for.
    pub fn lines(&self, pid: i32) -> Vec<String> {
        let who = BoundTask { node: self.node, rank: self.rank, local_rank: self.local_rank, pid };
        let cpus = self.bound.filter(|bound| bound.is_verbose()).map(|bound| bound.report(who));
        let memory = self.memory.filter(|memory| memory.verbose).map(|memory| {
            let domains = memory.named(self.local_rank).unwrap_or_else(allowed_domains);
            memory.report(who, &domains)
        });
        cpus.into_iter().chain(memory).collect()
    }
}

/// The NUMA domains that this process may use; the first where the kernel does not say.
fn allowed_domains() -> CpuSet {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Mems_allowed_list:"));
    let parsed = list.and_then(|list| list.trim().parse().ok());
    parsed.unwrap_or_else(|| CpuSet::from_iter([0]))
}

fn words_of(set: &CpuSet) -> Vec<u64> {
    let highest = set.iter().last().unwrap_or(0);
    let mut words = vec![0; highest as usize / 64 + 1];
    set.iter().for_each(|cpu| words[cpu as usize / 64] |= 1 << (cpu % 64));
    words
}

fn set_affinity(cpus: &CpuSet) -> Result<(), Errno> {
    let words = words_of(cpus);
    let bytes = std::mem::size_of_val(words.as_slice());
    // SAFETY: the kernel reads as many bytes of the live vector as it is told.
    let result = unsafe { libc::sched_setaffinity(0, bytes, words.as_ptr().cast()) };
    Errno::result(result).map(drop)
}

fn set_memory_policy(mode: libc::c_int, domains: Option<&CpuSet>) -> Result<(), Errno> {
    let words = domains.map(words_of).unwrap_or_default();
    let (mask, bits) = if words.is_empty() {
        (std::ptr::null(), 0)
    } else {
        // The kernel ignores the last bit of the mask, so one more is passed.
        (words.as_ptr(), words.len() * 64 + 1)
    };
    // SAFETY: the kernel reads as many bits of the live vector as it is told.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask, bits) };
    Errno::result(result).map(drop)
}
