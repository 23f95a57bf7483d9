//! Compares the cost of a job on its node to its minimum: `launch_path N STATE` runs N jobs of `true` one after another
//! through spool, launcher, supervisor, groups, exec and cleanup, and as many bare forks into a group with the same
//! limits, in short alternating turns, so that other load affects both. Prints the CPU of each for one job, their
//! ratio, the median time from order to end, and the private memory of a supervisor; each CPU is the median of its
//! turns. Needs root and the `cpuacct` controller.

use agent::Launcher;
use agent::cgroup::{Forked, GroupLimits, Hierarchy, JobGroup, Plugin};
use agent::load::launch_path::LaunchPath;
use nix::sys::wait::waitpid;
use nix::unistd::execv;
use std::error::Error;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const TURN: u32 = 20;

fn main() -> Result<(), Box<dyn Error>> {
    let account = Account::enter()?;
    // Before anything that could have a thread.
    let launcher = Launcher::start()?;
    let count: u32 = std::env::args().nth(1).unwrap_or_else(|| "500".into()).parse()?;
    let state = std::env::args().nth(2).ok_or("launch_path N STATE")?;
    std::fs::create_dir_all(&state)?;
    let mut path = LaunchPath::open(launcher, Path::new(&state))?;
    let mut bare = Bare { hierarchy: Hierarchy::discover(Plugin::Auto, "sluicebare")?, made: 0 };
    // Warms up caches.
    for _ in 0..20 {
        path.run_one("#!/bin/true\n")?;
        bare.run_one()?;
    }
    let (mut whole, mut least, mut times) = (Vec::new(), Vec::new(), Vec::new());
    let turns = count.div_ceil(TURN);
    for _ in 0..turns {
        let before = account.used()?;
        for _ in 0..TURN {
            let begin = Instant::now();
            path.run_one("#!/bin/true\n")?;
            times.push(begin.elapsed());
        }
        // The last supervisor's end is part of its cost.
        std::thread::sleep(Duration::from_millis(20));
        let between = account.used()?;
        for _ in 0..TURN {
            bare.run_one()?;
        }
        whole.push((between - before) / TURN);
        least.push((account.used()? - between) / TURN);
    }
    let (whole, least, median) = (median_ms(whole), median_ms(least), median_ms(times));
    let memory = path.supervisor_memory()?;
    bare.hierarchy.remove_root()?;
    println!(
        "launch n={} launch_cpu_ms={whole:.3} launch_bare_ms={least:.3} launch_ratio={:.2} launch_wall_ms={median:.2} supervisor_kb={}",
        turns * TURN,
        whole / least,
        memory >> 10,
    );
    Ok(())
}

fn median_ms(mut of: Vec<Duration>) -> f64 {
    of.sort_unstable();
    of[of.len() / 2].as_secs_f64() * 1e3
}

struct Bare {
    hierarchy: Hierarchy,
    made: u32,
}

impl Bare {
    fn run_one(&mut self) -> Result<(), Box<dyn Error>> {
        self.made += 1;
        let limits = GroupLimits {
            memory_bytes: Some(64 << 20),
            cpuset: Some("0".into()),
            pids_max: Some(1000),
            ..GroupLimits::default()
        };
        let group = JobGroup::create(&self.hierarchy, &format!("bare_{}", self.made), &limits)?;
        let entry = group.entry_fds()?;
        // SAFETY: this process has one thread, and the child executes or exits.
        match unsafe { entry.fork() }? {
            Forked::Child(_) => {
                let program = CString::from(c"/bin/true");
                let _ = execv(&program, std::slice::from_ref(&program));
                // SAFETY: nothing of this process is to be tidied up in the child.
                unsafe { libc::_exit(127) }
            }
            Forked::Parent(child) => waitpid(child, None)?,
        };
        group.remove()?;
        Ok(())
    }
}

/// The CPU time of this process and all its descendants, also of those that it does not wait for.
struct Account(PathBuf);

impl Account {
    fn enter() -> Result<Account, Box<dyn Error>> {
        let group = PathBuf::from("/sys/fs/cgroup/cpuacct/sluicelaunch");
        std::fs::create_dir_all(&group)?;
        std::fs::write(group.join("cgroup.procs"), "0")?;
        Ok(Account(group))
    }

    fn used(&self) -> Result<Duration, Box<dyn Error>> {
        let nanos = std::fs::read_to_string(self.0.join("cpuacct.usage"))?;
        Ok(Duration::from_nanos(nanos.trim().parse()?))
    }
}
