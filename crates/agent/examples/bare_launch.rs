//! Measures the minimal cost of a job: `bare_launch N` makes a group with a memory limit, forks a child into it that
//! executes `true`, waits, and removes the group; N times, and without groups N times more.
//!
//! Prints the CPU and wall time of each. `make bench` compares the launch of a job to it.

use agent::cgroup::{Forked, GroupLimits, Hierarchy, JobGroup, Plugin};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::wait::waitpid;
use nix::unistd::{execv, fork};
use std::error::Error;
use std::ffi::CString;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let count: u32 = std::env::args().nth(1).unwrap_or_else(|| "500".into()).parse()?;
    let hierarchy = Hierarchy::discover(Plugin::Auto, "sluicebare")?;
    let limits = GroupLimits { memory_bytes: Some(10 << 20), ..GroupLimits::default() };
    let grouped = measure(count, |i| {
        let group = JobGroup::create(&hierarchy, &format!("bare_{i}"), &limits)?;
        let entry = group.entry_fds()?;
        // SAFETY: this process has one thread, and the child executes or exits.
        match unsafe { entry.fork() }? {
            Forked::Child(_) => execute(),
            Forked::Parent(child) => waitpid(child, None)?,
        };
        group.remove()?;
        Ok(())
    })?;
    let plain = measure(count, |_| {
        // SAFETY: as above.
        match unsafe { fork() }? {
            nix::unistd::ForkResult::Child => execute(),
            nix::unistd::ForkResult::Parent { child } => waitpid(child, None)?,
        };
        Ok(())
    })?;
    hierarchy.remove_root()?;
    println!("bare n={count} grouped_cpu_ms={:.2} grouped_wall_ms={:.2}", grouped.0, grouped.1);
    println!("fork n={count} plain_cpu_ms={:.2} plain_wall_ms={:.2}", plain.0, plain.1);
    Ok(())
}

fn execute() -> ! {
    let program = CString::from(c"/bin/true");
    let _ = execv(&program, std::slice::from_ref(&program));
    // SAFETY: nothing of this process is to be tidied up in the child.
    unsafe { libc::_exit(127) }
}

/// CPU and wall time of one round, in milliseconds.
fn measure(
    count: u32,
    mut once: impl FnMut(u32) -> Result<(), Box<dyn Error>>,
) -> Result<(f64, f64), Box<dyn Error>> {
    let (begin, before) = (Instant::now(), used()?);
    for i in 0..count {
        once(i)?;
    }
    let per = |time: Duration| time.as_secs_f64() * 1e3 / f64::from(count);
    Ok((per(used()?.saturating_sub(before)), per(begin.elapsed())))
}

fn used() -> Result<Duration, Box<dyn Error>> {
    let total = |usage: Usage| {
        let of = |time: nix::sys::time::TimeVal| {
            Duration::new(time.tv_sec() as u64, time.tv_usec() as u32 * 1000)
        };
        of(usage.user_time()) + of(usage.system_time())
    };
    Ok(total(getrusage(UsageWho::RUSAGE_SELF)?) + total(getrusage(UsageWho::RUSAGE_CHILDREN)?))
}
