//! Tests of real control groups on the trees of this machine. They need root.

use std::fs;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::chown;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use agent::cgroup::{CgroupError, GroupLimits, Hierarchy, JobGroup, Layout, Plugin};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

const TIMEOUT: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

/// A root group for one test; leftovers of a failed test are removed.
struct Scratch {
    hierarchy: Hierarchy,
}

impl Scratch {
    fn try_new(plugin: Plugin) -> Result<Scratch, CgroupError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        assert!(
            nix::unistd::Uid::effective().is_root(),
            "run as root: this test makes control groups"
        );
        let name =
            format!("sluicetest_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Hierarchy::discover(plugin, &name).map(|hierarchy| Scratch { hierarchy })
    }

    fn new(plugin: Plugin) -> Scratch {
        Scratch::try_new(plugin).expect("discover control groups")
    }

    fn job(&self, limits: &GroupLimits) -> JobGroup {
        JobGroup::create(&self.hierarchy, "job_1_1", limits).expect("create the job's group")
    }

    /// Asserts that the test has left nothing.
    fn end(self) {
        assert_eq!(self.hierarchy.leftovers().expect("list"), Vec::<String>::new());
        self.hierarchy.remove_root().expect("remove our root");
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for name in self.hierarchy.leftovers().unwrap_or_default() {
            if let Ok(group) = JobGroup::open(&self.hierarchy, &name) {
                let _ = group.kill_all(TIMEOUT);
                let _ = group.remove();
            }
        }
        let _ = self.hierarchy.remove_root();
    }
}

/// The plugins that this machine has trees for; `Auto` is always one.
fn plugins() -> Vec<Plugin> {
    let there = |plugin: &Plugin| match Scratch::try_new(*plugin) {
        Ok(scratch) => {
            scratch.end();
            true
        }
        Err(CgroupError::Unavailable { .. }) => false,
        Err(error) => panic!("{plugin}: {error}"),
    };
    let found: Vec<Plugin> =
        [Plugin::Auto, Plugin::V1, Plugin::V2].into_iter().filter(there).collect();
    assert!(found.contains(&Plugin::Auto) && found.len() > 1, "no control groups here: {found:?}");
    found
}

fn spawn_in(group: &JobGroup, script: &str) -> Child {
    let entry = group.entry_fds().expect("entry descriptors");
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(script).stdout(Stdio::piped());
    // SAFETY: `enter` only writes to open descriptors, which is allowed between fork and exec.
    unsafe { command.pre_exec(move || Ok(entry.enter()?)) };
    command.spawn().expect("start in the group")
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < TIMEOUT, "not within {TIMEOUT:?}: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// A process's groups, one line for each tree.
fn places(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("read the process's groups")
}

#[test]
fn root_a_child_starts_inside_its_limits() {
    let scratch = Scratch::new(Plugin::Auto);
    let can = scratch.hierarchy.capabilities();
    assert!(can.memory_hard && can.kill && can.freeze && can.usage_cpu, "{can:?}");
    let limits = GroupLimits {
        memory_bytes: Some(256 * MIB),
        swap_bytes: can.swap.then_some(0),
        cpuset: can.cpuset.then(|| "0".to_owned()),
        pids_max: can.pids.then_some(3),
        ..Default::default()
    };
    let group = scratch.job(&limits);
    // The shell and two sleeps reach the limit; the third is refused.
    let script = "cat /proc/self/cgroup; grep Cpus_allowed_list /proc/self/status
                  sleep 300 & sleep 300 & sleep 300 & echo started; wait";
    let leaf = group.leaf("step_batch").expect("a place inside");
    let mut child = spawn_in(leaf.as_ref().unwrap_or(&group), script);
    let mut output = child.stdout.take().expect("piped");
    if can.pids {
        let status = child.wait().expect("wait");
        assert_ne!(status.code(), Some(0), "the shell could not fork and says so");
    }
    group.kill_all(TIMEOUT).expect("kill");
    let _ = child.wait();
    let mut text = String::new();
    output.read_to_string(&mut text).expect("read");
    let count = text.lines().filter(|line| line.contains("/job_1_1")).count();
    // v2 alone; or memory, cpuset and pids of v1 beside it; or those with freezer and cpuacct.
    let trees = match can.layout {
        Layout::V2 => 1,
        Layout::Hybrid => 4,
        Layout::V1 | Layout::Tracked => 5,
    };
    assert_eq!(count, trees, "{text}");
    if can.cpuset {
        assert!(text.contains("Cpus_allowed_list:\t0\n"), "{text}");
    }
    assert_eq!(text.contains("started"), !can.pids, "{text}");
    let usage = group.usage().expect("usage");
    assert!(usage.memory_peak_bytes.is_some_and(|peak| peak > 0 && peak <= 256 * MIB), "{usage:?}");
    let cpu = usage.cpu_user_us.zip(usage.cpu_system_us).map(|(user, system)| user + system);
    assert!(cpu.is_some_and(|micros| micros > 0), "{usage:?}");
    assert_eq!((usage.oom_kills, usage.pids_now), (Some(0), Some(0)));
    group.remove().expect("remove");
    scratch.end();
}

#[test]
fn root_a_kill_for_memory_is_counted_from_the_leaf() {
    for plugin in [Plugin::Auto, Plugin::V1] {
        let Ok(scratch) = Scratch::try_new(plugin) else { continue };
        let can = scratch.hierarchy.capabilities();
        let swap_bytes = can.swap.then_some(0);
        let job = scratch.job(&GroupLimits {
            memory_bytes: Some(32 * MIB),
            swap_bytes,
            ..Default::default()
        });
        // The limit is the job's, the victim is in the step: v1 counts the kill only there.
        let roomy = GroupLimits { memory_bytes: Some(512 * MIB), ..Default::default() };
        let step = job.child("step_0", &roomy).expect("step's group");
        let mut child = spawn_in(&step, "head -c 200000000 /dev/zero | tail -n 1 >/dev/null");
        let status = child.wait().expect("wait");
        assert_eq!(status.code().or(status.signal().map(|n| 128 + n)), Some(137), "{plugin}");
        let usage = job.usage().expect("usage");
        // The kernel decides how many processes of a pipeline it kills.
        let killed = usage.oom_kills.unwrap_or(0);
        assert!((1..=3).contains(&killed), "{plugin} {usage:?}");
        assert!(usage.memory_peak_bytes.is_some_and(|peak| peak <= 33 * MIB), "{usage:?}");
        job.kill_all(TIMEOUT).expect("nothing left to kill");
        job.remove().expect("remove job with its step");
        scratch.end();
    }
}

#[test]
fn root_a_daemon_that_ignores_signals_and_left_its_session_is_killed() {
    for plugin in plugins() {
        let scratch = Scratch::new(plugin);
        let group = scratch.job(&GroupLimits::default());
        let daemon =
            "setsid sh -c 'trap \"\" TERM HUP INT; while :; do sleep 300; done' >/dev/null";
        let mut child = spawn_in(&group, &format!("({daemon} & ) & wait"));
        child.wait().expect("the script itself ends");
        until("the daemon runs", || group.pids().expect("list").len() >= 2);
        assert!(!group.is_empty().expect("look"), "{plugin}: the daemon holds the group");
        group.signal_all(Signal::SIGHUP).expect("signal");
        group.kill_all(TIMEOUT).expect("kill");
        assert!(group.is_empty().expect("look"), "{plugin}");
        group.remove().expect("remove");
        scratch.end();
    }
}

#[test]
fn root_a_fork_bomb_is_killed() {
    for plugin in plugins() {
        let scratch = Scratch::new(plugin);
        let pids_max = scratch.hierarchy.capabilities().pids.then_some(100);
        // Where nothing bounds the bomb it is a chain: each link forks the next and leaves.
        let script = match pids_max {
            Some(_) => "b() { b & b & }; b; wait",
            None => "c() { c & exit; }; c",
        };
        let group = scratch.job(&GroupLimits { pids_max, ..Default::default() });
        let mut child = spawn_in(&group, &format!("exec 2>/dev/null; {script}"));
        drop(child.stdout.take());
        child.wait().expect("the first shell ends");
        group.kill_all(TIMEOUT).expect("kill");
        assert_eq!(group.pids().expect("list"), Vec::<i32>::new(), "{plugin}");
        group.remove().expect("remove");
        scratch.end();
    }
}

#[test]
fn root_frozen_means_no_output_and_a_frozen_job_can_be_killed() {
    for plugin in plugins() {
        let scratch = Scratch::new(plugin);
        if !scratch.hierarchy.capabilities().freeze {
            continue;
        }
        let group = scratch.job(&GroupLimits::default());
        let mut child = spawn_in(&group, "exec yes");
        let mut output = child.stdout.take().expect("piped");
        fcntl(&output, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("non-blocking");
        let mut readable = |timeout: u16| {
            let mut fds = [PollFd::new(output.as_fd(), PollFlags::POLLIN)];
            let ready = poll(&mut fds, PollTimeout::from(timeout)).expect("poll") == 1;
            let mut buffer = vec![0; 1 << 20];
            while output.read(&mut buffer).is_ok_and(|length| length > 0) {}
            ready
        };
        assert!(readable(60_000), "{plugin}: it writes");
        group.freeze().expect("freeze");
        readable(0);
        assert!(!readable(100), "{plugin}: a frozen writer is silent");
        group.thaw().expect("thaw");
        assert!(readable(60_000), "{plugin}: it writes again");
        group.freeze().expect("freeze");
        group.kill_all(TIMEOUT).expect("kill while frozen");
        assert_eq!(child.wait().expect("wait").signal(), Some(9));
        group.remove().expect("remove");
        scratch.end();
    }
}

#[test]
fn root_groups_of_a_dead_agent_are_found_and_cleaned() {
    for plugin in plugins() {
        let scratch = Scratch::new(plugin);
        let limits = GroupLimits { pids_max: None, ..Default::default() };
        let mut child = {
            let group = scratch.job(&limits);
            let step = group.child("step_0", &GroupLimits::default()).expect("step");
            spawn_in(&step, "exec sleep 300")
        };
        let later = Hierarchy::discover(plugin, scratch.hierarchy.root_name()).expect("again");
        assert_eq!(later.leftovers().expect("list"), ["job_1_1"]);
        let found = JobGroup::open(&later, "job_1_1").expect("adopt");
        assert_eq!(found.pids().expect("list"), [child.id() as i32], "{plugin}");
        assert!(found.remove().is_err(), "{plugin}: not while something runs in it");
        found.kill_all(TIMEOUT).expect("kill");
        assert_eq!(child.wait().expect("wait").signal(), Some(9));
        found.remove().expect("remove with the step inside");
        found.remove().expect("twice is no error");
        assert!(matches!(JobGroup::open(&later, "job_1_1"), Err(CgroupError::NotFound { .. })));
        scratch.end();
    }
}

#[test]
fn root_a_refused_limit_leaves_nothing_and_a_name_is_used_once() {
    let scratch = Scratch::new(Plugin::Auto);
    let hierarchy = &scratch.hierarchy;
    if hierarchy.capabilities().cpuset {
        let limits = GroupLimits {
            memory_bytes: Some(64 * MIB),
            cpuset: Some("not-a-list".into()),
            ..Default::default()
        };
        let error = JobGroup::create(hierarchy, "job_2_1", &limits).err().expect("refused");
        assert!(error.to_string().contains("not-a-list"), "{error}");
        assert_eq!(hierarchy.leftovers().expect("list"), Vec::<String>::new());
    }
    let group = scratch.job(&GroupLimits::default());
    let again = JobGroup::create(hierarchy, "job_1_1", &GroupLimits::default());
    assert!(matches!(again, Err(CgroupError::Exists { .. })), "a group is never used twice");
    assert_eq!(hierarchy.leftovers().expect("list"), ["job_1_1"], "the first one still stands");
    group.remove().expect("remove");
    scratch.end();
}

#[test]
fn root_a_member_that_left_the_v2_tree_is_still_a_member() {
    let scratch = Scratch::new(Plugin::Auto);
    if scratch.hierarchy.capabilities().layout == Layout::Hybrid {
        let group =
            scratch.job(&GroupLimits { memory_bytes: Some(64 * MIB), ..Default::default() });
        let mut child = spawn_in(&group, "exec sleep 300");
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        let unified = mounts.lines().find(|line| line.contains(" - cgroup2 ")).expect("v2");
        let top = unified.split(' ').nth(4).expect("mount point");
        fs::write(format!("{top}/cgroup.procs"), child.id().to_string()).expect("move away");
        let watch = group.wait_empty_fd().expect("open").expect("v2 has one");
        assert!(watch.is_empty().expect("look"), "gone from the v2 group");
        assert!(!group.is_empty().expect("look"), "yet its memory is still the job's");
        group.kill_all(TIMEOUT).expect("kill");
        assert_eq!(child.wait().expect("wait").signal(), Some(9));
        group.remove().expect("remove");
    }
    scratch.end();
}

#[test]
fn root_the_last_exit_wakes_a_poll() {
    let scratch = Scratch::new(Plugin::Auto);
    let group = scratch.job(&GroupLimits::default());
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("spawn");
    group.attach(child.id() as i32).expect("attach");
    let watch = group.wait_empty_fd().expect("open").expect("this machine has v2");
    assert!(!watch.is_empty().expect("look"));
    drop(child.stdin.take());
    let mut fds = [PollFd::new(watch.as_fd(), PollFlags::POLLPRI)];
    assert_eq!(poll(&mut fds, PollTimeout::from(10_000_u16)), Ok(1), "the exit wakes the poll");
    assert!(watch.is_empty().expect("look"), "empty before anyone has reaped the zombie");
    child.wait().expect("wait");
    group.remove().expect("remove");
    scratch.end();
}

#[test]
fn root_an_ordinary_user_works_in_the_v2_group_delegated_to_him() {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let unified = mounts.lines().find(|line| line.contains(" - cgroup2 ")).expect("v2");
    let top = unified.split(' ').nth(4).expect("mount point").to_owned();
    let before = places(std::process::id());
    let before = before.lines().find_map(|line| line.strip_prefix("0::")).expect("own v2 group");
    let delegated = format!("{top}/sluicetest_delegated_{}", std::process::id());
    fs::create_dir(&delegated).expect("run as root: this test makes control groups");
    for file in ["", "/cgroup.procs", "/cgroup.subtree_control"] {
        chown(format!("{delegated}{file}"), Some(65534), None).expect("delegate");
    }
    fs::write(format!("{delegated}/cgroup.procs"), "0").expect("move in");
    let work = thread::spawn(|| {
        become_nobody();
        let hierarchy = Hierarchy::discover(Plugin::V2, "sluicetest").expect("delegated");
        let can = hierarchy.capabilities().clone();
        let memory_bytes = can.memory_hard.then_some(64 * MIB);
        let limits = GroupLimits { memory_bytes, ..Default::default() };
        let group = JobGroup::create(&hierarchy, "job_1_1", &limits).expect("create");
        let leaf = group.leaf("step_batch").expect("a place inside");
        let mut child = spawn_in(leaf.as_ref().unwrap_or(&group), "exec sleep 300");
        let inside = places(child.id()).contains("/sluicetest/job_1_1");
        group.kill_all(TIMEOUT).expect("kill");
        let signal = child.wait().expect("wait").signal();
        group.remove().expect("remove");
        hierarchy.remove_root().expect("remove our root");
        (can, inside, signal)
    });
    let result = work.join();
    fs::write(format!("{top}{before}/cgroup.procs"), "0").expect("move back");
    let _ = fs::remove_dir(format!("{delegated}/sluicetest.agent"));
    // Children that tests beside this one started meanwhile were born here too.
    until("the delegated group is empty", || fs::remove_dir(&delegated).is_ok());
    let (can, inside, signal) = result.expect("all went well");
    assert!(inside && signal == Some(9));
    assert!(can.layout == Layout::V2 && can.kill && can.freeze && !can.devices, "{can:?}");
    let delegable = fs::read_to_string(format!("{top}/cgroup.subtree_control")).expect("read");
    assert_eq!(can.memory_hard, delegable.contains("memory"), "{can:?}");
}

/// Gives up root for this thread alone.
fn become_nobody() {
    // SAFETY: plain integers. The raw call, unlike libc's wrapper, changes only the calling thread.
    let rc = unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) };
    assert_eq!(rc, 0, "give up root");
}

#[test]
fn root_without_rights_auto_tracks_and_says_why() {
    assert!(nix::unistd::Uid::effective().is_root(), "run as root: this test gives rights up");
    let found = thread::spawn(|| {
        become_nobody();
        let auto = Hierarchy::discover(Plugin::Auto, "sluicetest_nobody").expect("auto");
        let named = Hierarchy::discover(Plugin::V2, "sluicetest_nobody").err();
        (auto.capabilities().clone(), named.map(|error| error.to_string()))
    });
    let (can, named) = found.join().expect("thread");
    assert_eq!(can.layout, Layout::Tracked);
    assert!(!can.memory_hard && !can.kill && !can.devices, "{can:?}");
    let reason = can.reason_against("memory").expect("a reason");
    assert!(reason.contains("denied"), "{reason}");
    assert!(named.is_some_and(|error| error.contains("cgroup/v2") && error.contains("denied")));
}
