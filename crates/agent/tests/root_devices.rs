//! Tests of real device limits, by the controller of v1 and the program of v2. They need root.

mod groups;

use std::process::Command;

use agent::cgroup::{DeviceRule, GroupLimits, JobGroup, Plugin};
use groups::{Scratch, said};

/// The device that the shell itself needs, and one that stands for a GPU: `/dev/full`, whose reads give zeros.
const NULL: DeviceRule = DeviceRule::char(1, Some(3));
const FULL: DeviceRule = DeviceRule::char(1, Some(7));

/// Every kind of tree here that restricts devices.
fn trees() -> Vec<(Plugin, Scratch)> {
    let able = |(_, one): &(Plugin, Scratch)| one.hierarchy.capabilities().devices;
    let found: Vec<_> = Scratch::all().into_iter().filter(able).collect();
    assert!(!found.is_empty(), "nothing here restricts devices");
    found
}

fn limits(devices: &[DeviceRule]) -> GroupLimits {
    GroupLimits { devices: Some(devices.to_vec()), ..GroupLimits::default() }
}

/// Prints which of the devices can be opened.
const TRY: &str = "for device in null full zero; do \
                   if (exec 3< /dev/$device) 2> /dev/null; then echo -n \"$device \"; fi; done";

#[test]
fn root_only_granted_devices_can_be_opened() {
    for (plugin, scratch) in trees() {
        let job = scratch.job(&limits(&[NULL, FULL]));
        assert_eq!(said(&job, TRY), "null full ", "{plugin}");
        let why = said(&job, "exec 3< /dev/zero");
        assert!(why.contains("Operation not permitted"), "{plugin}: {why}");
    }
}

#[test]
fn root_a_step_has_fewer_devices_and_never_more() {
    for (plugin, scratch) in trees() {
        let job = scratch.job(&limits(&[NULL, FULL]));
        let step = job.child("step_0", &limits(&[NULL])).expect("fewer");
        assert_eq!(said(&step, TRY), "null ", "{plugin}");
        let plain = job.child("step_1", &GroupLimits::default()).expect("as its job");
        assert_eq!(said(&plain, TRY), "null full ", "{plugin}");
        // v1 refuses more devices than the job's; v2 also runs the job's program.
        let zero = DeviceRule::char(1, Some(5));
        if let Ok(greedy) = job.child("step_2", &limits(&[NULL, zero])) {
            assert_eq!(said(&greedy, TRY), "null ", "{plugin}");
        }
    }
}

#[test]
fn root_a_device_made_under_another_name_is_the_same_device() {
    let folder = tempfile::tempdir().expect("scratch folder");
    for (plugin, scratch) in trees() {
        let job = scratch.job(&limits(&[NULL]));
        let path = folder.path().join(format!("alias{}", plugin as u8));
        let path = path.to_str().expect("utf-8");
        // A node cannot be opened, wherever it was made: runtimes of containers may make them.
        let made = Command::new("mknod").args([path, "c", "1", "5"]).status().expect("run mknod");
        assert!(made.success());
        let why = said(&job, &format!("exec 3< {path}"));
        assert!(why.contains("Operation not permitted"), "{plugin}: {why}");
        let why = said(&job, &format!("mknod {path}.own c 1 5; exec 3< {path}.own && echo opened"));
        assert!(!why.contains("opened"), "{plugin}: {why}");
        let why =
            said(&job, &format!("mknod {path}.null c 1 3 && exec 3< {path}.null && echo mine"));
        assert!(why.contains("mine"), "{plugin}: {why}");
    }
}

#[test]
fn root_without_a_list_every_device_is_open_and_nothing_is_left() {
    for (plugin, scratch) in trees() {
        let job = JobGroup::create(&scratch.hierarchy, "job_2_1", &GroupLimits::default());
        let job = job.expect("make the group");
        assert_eq!(said(&job, TRY), "null full zero ", "{plugin}");
        job.remove().expect("remove");
        let job = scratch.job(&limits(&[NULL]));
        job.remove().expect("a restricted group is removed like any other");
        assert_eq!(scratch.hierarchy.leftovers().expect("list"), Vec::<String>::new(), "{plugin}");
    }
}

#[test]
fn root_a_group_beside_the_jobs_has_no_limits_and_is_found_like_it() {
    for (plugin, scratch) in trees() {
        let job = scratch.job(&limits(&[NULL]));
        let beside = job.sibling("job_1_1.prolog").expect("make it").expect("trees have groups");
        assert_eq!(said(&job, TRY), "null ", "{plugin}");
        assert_eq!(said(&beside, TRY), "null full zero ", "{plugin}");
        let found = scratch.hierarchy.leftovers().expect("list");
        assert_eq!(found, ["job_1_1", "job_1_1.prolog"], "{plugin}");
        let again = job.sibling("job_1_1.prolog").err().expect("a name is used once");
        assert!(again.to_string().contains("job_1_1.prolog"), "{again}");
        // A daemon in it is killed with it, and the job's own group is not.
        said(&beside, "setsid sleep 1000 > /dev/null 2>&1 &");
        assert!(!beside.is_empty().expect("look"), "{plugin}");
        let opened = JobGroup::open(&scratch.hierarchy, "job_1_1.prolog").expect("open");
        opened.kill_all(groups::TIMEOUT).expect("kill");
        opened.remove().expect("remove");
        assert_eq!(scratch.hierarchy.leftovers().expect("list"), ["job_1_1"], "{plugin}");
    }
}

#[test]
fn root_a_list_too_long_is_refused_and_leaves_nothing() {
    for (plugin, scratch) in trees() {
        let rules: Vec<DeviceRule> = (0..2000).map(|n| DeviceRule::char(240, Some(n))).collect();
        let refused = JobGroup::create(&scratch.hierarchy, "job_3_1", &limits(&rules)).err();
        let line = refused.expect("refused").to_string();
        assert!(line.contains("2000 rules"), "{plugin}: {line}");
        let long: Vec<DeviceRule> = rules.into_iter().take(1000).chain([NULL]).collect();
        assert_eq!(
            said(&scratch.job(&limits(&long)), TRY),
            "null ",
            "{plugin}: the last of many counts"
        );
    }
}
