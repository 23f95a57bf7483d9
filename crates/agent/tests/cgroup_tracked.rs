//! A job without control groups: its supervisor finds and ends everything below itself.
//! One test alone in this program, because here the supervisor is the test process and all its children are the job.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use agent::cgroup::{GroupLimits, Hierarchy, JobGroup, Layout, Plugin};

const TIMEOUT: Duration = Duration::from_secs(60);

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < TIMEOUT, "not within {TIMEOUT:?}: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_tracked_job_ends_with_all_its_daemons() {
    let root = format!("sluicetest_{}", std::process::id());
    let hierarchy = Hierarchy::discover(Plugin::Disabled, &root).expect("needs nothing");
    assert_eq!(hierarchy.capabilities().layout, Layout::Tracked);
    let limited = GroupLimits { memory_bytes: Some(1 << 20), ..Default::default() };
    let refused = JobGroup::create(&hierarchy, "job_1_1", &limited).err().expect("refused");
    assert!(refused.to_string().contains("CgroupPlugin=disabled"), "{refused}");

    let group = JobGroup::create(&hierarchy, "job_1_1", &GroupLimits::default()).expect("create");
    let (variable, mark) = group.marker().expect("tracked by a mark");
    assert!(group.is_empty().expect("look"));
    group.entry_fds().expect("none needed").enter().expect("nothing to do");

    // One daemon keeps the mark, the other drops its whole environment; both leave session and parent.
    let daemon = |prefix: &str| {
        format!("({prefix} setsid sh -c 'trap \"\" TERM HUP; sleep 300; :' >/dev/null &) ;")
    };
    let script = format!("{} {}", daemon(""), daemon("env -i PATH=\"$PATH\""));
    let mut child = Command::new("/bin/sh")
        .args(["-c", &script])
        .env(variable, mark)
        .stdout(Stdio::null())
        .spawn()
        .expect("spawn");
    child.wait().expect("the script ends");
    until("both daemons run", || group.pids().expect("list").len() == 4);

    assert_eq!(hierarchy.leftovers().expect("list").first().map(String::as_str), Some("job_1_1"));
    let adopted = JobGroup::open(&hierarchy, "job_1_1").expect("by its mark");
    assert_eq!(adopted.pids().expect("list").len(), 2, "only the marked daemon without ancestry");
    assert_eq!(group.usage().expect("usage").pids_now, Some(4));
    group.freeze().expect("stop");
    group.kill_all(TIMEOUT).expect("kill");
    assert!(group.is_empty().expect("look"));
    assert!(JobGroup::open(&hierarchy, "job_1_1").is_err(), "nothing carries its mark now");
    group.remove().expect("nothing to remove");
}
