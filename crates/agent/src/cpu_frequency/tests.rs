//! Frequencies of CPUs in a folder that plays the kernel's.

use super::*;
use model::cpu_frequency::{Frequency, Governor};
use model::id::JobId;

struct Machine {
    folder: tempfile::TempDir,
    cpus: CpuFrequencies,
}

/// Three CPUs, of which the last has no frequencies.
fn machine() -> Machine {
    let folder = tempfile::tempdir().expect("scratch folder");
    for cpu in 0..2 {
        let cpufreq = folder.path().join(format!("sys/cpu{cpu}/cpufreq"));
        fs::create_dir_all(&cpufreq).expect("made");
        for (name, text) in [
            (GOVERNOR, "schedutil\n"),
            (MIN, "800000\n"),
            (MAX, "3000000\n"),
            (SPEED, "<unsupported>\n"),
            ("affected_cpus", &format!("{cpu}\n")),
            ("cpuinfo_min_freq", "800000\n"),
            ("cpuinfo_max_freq", "3000000\n"),
            ("scaling_available_frequencies", "3000000 2000000 1400000 800000 \n"),
        ] {
            fs::write(cpufreq.join(name), text).expect("written");
        }
    }
    let state = folder.path().join("state");
    fs::create_dir(&state).expect("made");
    let cpus = CpuFrequencies { state, sysfs: folder.path().join("sys") };
    Machine { folder, cpus }
}

impl Machine {
    /// For a step of a job that has all CPUs.
    fn set(&self, owner: &FrequencyOwner, cpus: &str, wanted: &CpuFrequency) -> Result<(), String> {
        self.cpus.set(owner, &cpus.parse().expect("a list"), &CpuSet::first(3), wanted)
    }

    /// Gives the first two CPUs one frequency.
    fn join_cpus(&self) {
        let second = self.folder.path().join("sys/cpu1/cpufreq");
        fs::remove_dir_all(&second).expect("removed");
        std::os::unix::fs::symlink("../cpu0/cpufreq", &second).expect("a link");
        fs::write(second.join("affected_cpus"), "0 1\n").expect("written");
    }

    fn record(&self) -> PathBuf {
        self.folder.path().join("state").join(RECORD)
    }

    fn shown(&self, cpu: u32) -> String {
        let folder = self.folder.path().join(format!("sys/cpu{cpu}/cpufreq"));
        let domain = FrequencyDomain(folder.to_str().expect("utf-8").to_owned());
        let read = |name| domain.text(name).expect("a file");
        format!("{} {}-{}", read(GOVERNOR), read(MIN), read(MAX))
    }
}

fn owner(job: u32, step: &str) -> FrequencyOwner {
    let attempt = AttemptId { job: JobId(job), number: 1 };
    FrequencyOwner { node: "n1".into(), attempt, step: step.to_owned() }
}

fn wanted(governor: Governor, min: Option<Frequency>) -> CpuFrequency {
    CpuFrequency { min, max: None, governor: Some(governor) }
}

const BEFORE: &str = "schedutil 800000-3000000";

#[test]
fn cpus_of_a_step_are_set_and_set_back_and_others_are_left() {
    let machine = machine();
    let first = owner(7, "0");
    let asked = wanted(Governor::UserSpace, Some(Frequency::HighM1));
    assert_eq!(machine.set(&first, "1-2", &asked), Ok(()));
    assert_eq!(
        (machine.shown(0).as_str(), machine.shown(1).as_str()),
        (BEFORE, "userspace 2000000-2000000")
    );
    let speed = machine.folder.path().join("sys/cpu1/cpufreq").join(SPEED);
    assert_eq!(fs::read_to_string(speed).expect("a file"), "2000000\n");
    machine.cpus.release(|owner| *owner == first);
    assert_eq!(machine.shown(1), BEFORE);
    let line = machine.set(&first, "2", &asked).expect_err("none there");
    assert_eq!(line, "this machine's CPUs have no frequencies that can be set");
}

#[test]
fn steps_that_share_a_cpu_leave_it_to_the_one_that_is_left() {
    let machine = machine();
    let (first, second) = (owner(7, "0"), owner(7, "1"));
    let low = wanted(Governor::UserSpace, Some(Frequency::Low));
    let fast = wanted(Governor::Performance, None);
    for (ends_first, left) in
        [(&first, "performance 800000-3000000"), (&second, "userspace 800000-800000")]
    {
        machine.set(&first, "0", &low).expect("set");
        machine.set(&second, "0", &fast).expect("set");
        machine.cpus.release(|owner| owner == ends_first);
        assert_eq!(machine.shown(0), left);
        machine.cpus.release(|_| true);
        assert_eq!(machine.shown(0), BEFORE);
    }
}

/// Two CPUs whose folder is one: a step on each.
#[test]
fn cpus_with_one_frequency_are_set_back_when_the_last_step_on_them_ends() {
    let machine = machine();
    machine.join_cpus();
    let asked = wanted(Governor::Performance, Some(Frequency::High));
    for cpu in ["0", "1"] {
        machine.set(&owner(7, cpu), cpu, &asked).expect("set");
    }
    machine.cpus.release(|owner| owner.step == "0");
    assert_eq!(machine.shown(1), "performance 3000000-3000000");
    machine.cpus.release(|owner| owner.step == "1");
    assert_eq!((machine.shown(0).as_str(), machine.shown(1).as_str()), (BEFORE, BEFORE));
    assert!(!machine.record().exists(), "nothing is left");
}

#[test]
fn cpus_that_share_a_frequency_with_other_jobs_are_left_as_they_are() {
    let machine = machine();
    machine.join_cpus();
    let asked = wanted(Governor::UserSpace, Some(Frequency::Low));
    let own: CpuSet = "0".parse().expect("a list");
    let line = machine.cpus.set(&owner(7, "0"), &own, &own, &asked).expect_err("shared");
    assert!(line.ends_with("cpu0/cpufreq: CPUs of other jobs share it"), "{line}");
    assert_eq!(machine.shown(0), BEFORE);
    assert!(!machine.record().exists(), "nothing is to be set back");
}

#[test]
fn what_could_not_be_set_back_is_set_back_when_any_step_ends() {
    let machine = machine();
    machine.set(&owner(7, "0"), "0", &wanted(Governor::Performance, None)).expect("set");
    let governor = machine.folder.path().join("sys/cpu0/cpufreq").join(GOVERNOR);
    fs::remove_file(&governor).expect("removed");
    machine.cpus.release(|owner| owner.attempt.job == JobId(7));
    assert!(machine.record().exists(), "what it had is still known");
    fs::write(&governor, "performance\n").expect("written");
    machine.cpus.release(|_| false);
    assert_eq!(machine.shown(0), BEFORE);
    assert!(!machine.record().exists(), "nothing is left");
}

#[test]
fn nothing_is_set_while_the_record_cannot_be_read() {
    let machine = machine();
    fs::write(machine.record(), "{").expect("written");
    let asked = wanted(Governor::Performance, None);
    let line = machine.set(&owner(7, "0"), "0", &asked).expect_err("no record");
    assert!(line.contains(RECORD), "{line}");
    machine.cpus.release(|_| true);
    assert_eq!(machine.shown(0), BEFORE);
    assert_eq!(fs::read_to_string(machine.record()).expect("it stays"), "{");
}

/// A supervisor that was killed left the record; another process reads it.
#[test]
fn what_a_killed_supervisor_left_is_set_back_by_whoever_comes() {
    let machine = machine();
    let asked = wanted(Governor::Performance, Some(Frequency::High));
    machine.set(&owner(7, "0"), "0-1", &asked).expect("set");
    machine.set(&owner(8, "0"), "1", &asked).expect("set");
    let later = CpuFrequencies { ..machine.cpus.clone() };
    later.release(|owner| owner.attempt.job == JobId(7));
    assert_eq!(
        (machine.shown(0).as_str(), machine.shown(1).as_str()),
        (BEFORE, "performance 3000000-3000000")
    );
    later.release(|_| true);
    assert_eq!(machine.shown(1), BEFORE);
    // After the machine has started anew nothing is set back.
    machine.set(&owner(9, "0"), "0-1", &asked).expect("set");
    let record = machine.record();
    let text = fs::read_to_string(&record).expect("a record");
    let boot = fs::read_to_string(BOOT_ID).expect("an id");
    fs::write(&record, text.replace(boot.trim(), "another")).expect("written");
    later.release(|_| true);
    assert_eq!(machine.shown(0), "performance 3000000-3000000");
}

#[test]
fn what_a_node_that_is_gone_left_is_set_back() {
    let machine = machine();
    let state = machine.folder.path().join("state");
    let asked = wanted(Governor::Performance, None);
    let of_node = |node: &str, job| FrequencyOwner { node: node.into(), ..owner(job, "0") };
    machine.set(&of_node("gone", 7), "0", &asked).expect("set");
    machine.set(&of_node("stays", 8), "1", &asked).expect("set");
    let release = |is_alive: bool| {
        machine
            .cpus
            .release(|owner| SetFrequency::is_of_no_node(&state, owner, &|name| name == "stays"));
        assert_eq!(machine.shown(0) == BEFORE, !is_alive);
        assert_ne!(machine.shown(1), BEFORE, "its own agent sets it back");
    };
    // A supervisor that lives holds its attempt.
    let attempt = state.join("nodes/gone/spool/7.1");
    fs::create_dir_all(&attempt).expect("made");
    let launch = fs::File::create(attempt.join("launch.json")).expect("made");
    let held = Flock::lock(launch, FlockArg::LockExclusive).expect("locked");
    release(true);
    drop(held);
    release(false);
}
