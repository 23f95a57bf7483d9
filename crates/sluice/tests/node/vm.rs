//! Full cgroup v2, containers by crun, and a machine of two sockets, in an emulated virtual machine (`scripts/vm`). The guest prints one line for
//! each check; all of them must be there and pass.

use crate::harness::CommandOutput;
use std::process::{Command, Stdio};

const BOOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/vm/boot");

const KERNEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/vm/kernel");
const CRUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/vm/crun");

fn missing() -> Option<String> {
    let has = |program: &str| {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
        found.is_ok_and(|said| said.status.success())
    };
    let lacks = ["qemu-system-x86_64", "busybox", "strip", "xz", "ssh", "lsattr"]
        .into_iter()
        .find(|p| !has(p));
    if let Some(program) = lacks {
        return Some(format!("no {program} here to start a virtual machine with"));
    }
    let kernel: CommandOutput = Command::new(KERNEL).output().expect("the script runs").into();
    (kernel.code != 0).then(|| format!("no kernel: {}", kernel.stderr.trim()))
}

/// Boots the machine and evaluates the lines of its checks.
fn boot(kind: &str, checks: &[&str]) {
    if let Some(why) = missing() {
        return crate::harness::skip("vm", &why);
    }
    let mut command = Command::new(BOOT);
    command.args([kind, crate::harness::program()]).stdin(Stdio::null());
    let said: CommandOutput = command.output().expect("the script runs").into();
    let console = format!("{}\n{}", said.stdout, said.stderr);
    let missed: Vec<&&str> = checks
        .iter()
        .filter(|name| !said.stdout.lines().any(|line| line == format!("ok {name}")))
        .collect();
    let unknown: Vec<&str> = said
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("ok ").or(line.strip_prefix("not ok ")))
        .filter(|name| !checks.iter().any(|check| name.split(':').next() == Some(check)))
        .collect();
    assert!(
        said.stdout.lines().any(|line| line == "end"),
        "it did not come to its end:\n{console}"
    );
    assert!(missed.is_empty(), "not passed: {missed:?}\n{console}");
    assert!(unknown.is_empty(), "checks that nobody waits for: {unknown:?}");
    assert_eq!(said.code, 0, "{console}");
}

#[test]
fn up_vm_full_cgroup_v2_enforces_the_allocation() {
    boot(
        "groups",
        &[
            "cluster_up",
            "only_v2_is_used",
            "memory_is_a_wall",
            "memory_limit_is_what_was_allocated",
            "memory_of_a_step_is_its_own",
            "cores_are_a_wall",
            "steps_divide_the_jobs_cores",
            "devices_of_others_are_closed",
            "a_device_made_by_the_job_is_closed",
            "the_number_of_processes_is_limited",
            "a_fork_bomb_stays_in_its_job",
            "suspend_freezes",
            "daemons_die_with_their_job",
            "a_frozen_job_can_be_killed",
            "a_requeued_job_has_a_new_group",
            "a_job_cannot_change_its_group",
            "jobs_outlive_their_agent",
            "groups_left_over_are_cleaned",
            "a_lost_supervisor_takes_its_job_along",
            "logins_come_into_their_job",
            "programs_of_the_site_are_beside_the_job",
            "use_is_counted",
            "nothing_is_left",
            "a_read_only_tree_is_told_and_survived",
            "a_missing_tree_is_told_and_survived",
        ],
    );
}

#[test]
fn up_vm_scratch_quota_is_enforced() {
    boot(
        "scratch",
        &[
            "a_file_system_with_quotas",
            "cluster_up",
            "nothing_is_missing",
            "what_was_asked_is_the_limit",
            "the_sites_amount_holds_the_others",
            "a_task_of_dstacks_language_is_held_too",
            "files_run_out_too",
            "two_jobs_have_two_counts",
            "the_private_folder_counts_with_it",
            "records_are_freed",
            "limits_outlive_the_agent",
            "a_lost_supervisor_leaves_no_folder",
            "a_lost_job_does_not_lift_anothers_limit",
            "a_number_that_is_taken_is_nobody_elses",
            "a_volume_is_held_to_its_size",
            "no_record_is_left",
            "where_quotas_are_off_the_node_says_so",
        ],
    );
}

#[test]
fn up_vm_crun_runs_containers_on_cgroup_v2() {
    let crun: CommandOutput = Command::new(CRUN).output().expect("the script runs").into();
    if crun.code != 0 {
        return crate::harness::skip("vm", &format!("no crun: {}", crun.stderr.trim()));
    }
    boot(
        "containers",
        &[
            "a_file_system_for_images",
            "cluster_up",
            "crun_is_the_only_runtime",
            "a_step_runs_in_a_container_as_its_user",
            "a_container_has_its_jobs_memory",
            "a_container_has_its_jobs_devices",
            "signals_and_the_end_reach_a_container",
            "nothing_of_a_container_is_left",
        ],
    );
}

#[test]
fn up_vm_sockets_cores_threads_and_devices_are_detected() {
    boot(
        "topology",
        &[
            "kernel_shows_the_machine",
            "the_machine_is_detected",
            "cluster_up",
            "the_node_has_that_shape",
            "a_task_gets_a_whole_core",
            "two_jobs_never_share_a_core",
            "bound_to_cores",
            "bound_to_threads",
            "bound_to_sockets",
            "bound_to_ldoms",
            "bound_by_mask",
            "not_bound",
            "memory_is_where_it_was_bound",
            "memory_of_both_domains_is_the_jobs",
            "devices_bring_near_cores",
            "locality_is_detected",
        ],
    );
}
