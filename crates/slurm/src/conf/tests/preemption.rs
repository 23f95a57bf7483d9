//! The keys of preemption, requeue and backfill in slurm.conf.

use super::{accepted, refused};
use crate::conf::NoticeKind;
use crate::conf::slurm_conf::globals::backfill::Backfill;

#[test]
fn backfill_parameters_are_read_and_others_are_noticed_as_without_effect() {
    let conf = accepted(&[(
        "slurm.conf",
        "SchedulerParameters=bf_window=2880,bf_max_job_test=500,bf_max_job_part=200,bf_max_job_user=0,\
         bf_max_job_start=50,bf_max_job_array_resv=5,bf_min_prio_reserve=1000,bf_min_age_reserve=60,\
         bf_continue,bf_interval=60,nonesuch",
    )]);
    let expected = Backfill {
        window_min: Some(2880),
        places: Some(200),
        per_user: None,
        per_array: Some(5),
        priority_min: Some(1000),
        age_min_s: Some(60),
        starts_max: Some(50),
    };
    assert_eq!(conf.slurm.globals.scheduling.backfill, expected);
    let noticed = conf.notices.iter().filter(|n| n.why == NoticeKind::NoEffect);
    let noticed: Vec<&str> = noticed.map(|n| n.key.as_str()).collect();
    assert_eq!(noticed, ["SchedulerParameters=bf_interval", "SchedulerParameters=nonesuch"]);
}

#[test]
fn requeue_exits_and_requeue_delay_are_read() {
    let conf = accepted(&[(
        "slurm.conf",
        "RequeueExit=1-9,18\nRequeueExitHold=20\nAuthInfo=socket=/run/x,cred_expire=30",
    )]);
    let launch = &conf.slurm.globals.launch;
    assert_eq!(launch.requeue_exit, [(1, 9), (18, 18)]);
    assert_eq!((&launch.requeue_exit_hold[..], launch.requeue_wait_s), (&[(20, 20)][..], 30));
    assert_eq!(accepted(&[("slurm.conf", "")]).slurm.globals.launch.requeue_wait_s, 120);
}

#[test]
fn contradictions_are_refused_in_one_line() {
    let table = [
        (
            "PreemptType=preempt/qos",
            "PreemptType: \"preempt/qos\": expected PreemptMode=CANCEL, REQUEUE or SUSPEND,GANG beside it",
        ),
        (
            "PreemptType=preempt/qos\nPreemptMode=GANG",
            "PreemptType: \"preempt/qos\": expected PreemptMode=CANCEL, REQUEUE or SUSPEND,GANG beside it",
        ),
        (
            "PreemptMode=SUSPEND",
            "PreemptMode: \"SUSPEND\": expected SUSPEND,GANG: who makes room so goes on later",
        ),
        ("SchedulerTimeSlice=4", "SchedulerTimeSlice: \"4\": expected from 5 to 65533 seconds"),
        ("RequeueExit=9-1", "RequeueExit: \"9-1\": expected exit codes such as 1-9,18"),
        ("RequeueExit=300", "RequeueExit: \"300\": expected exit codes such as 1-9,18"),
        (
            "SchedulerParameters=bf_window=soon",
            "SchedulerParameters: \"bf_window=soon\": bf_window=soon: expected a whole number",
        ),
    ];
    for (text, words) in table {
        assert_eq!(refused(&[("slurm.conf", text)]), format!("/c/slurm.conf:1: {words}"), "{text}");
    }
}
