use super::*;
use crate::client::Answer;
use crate::samples::job_view;
use proptest::prelude::*;

fn written(jobs: &[JobView]) -> Vec<u8> {
    let mut writer = ListWriter::default();
    jobs.iter().for_each(|job| writer.push(job).unwrap());
    writer.answer(Timestamp(99)).unwrap()
}

fn read(bytes: &[u8]) -> Vec<JobView> {
    match serde_json::from_slice(bytes).unwrap() {
        Answer::Jobs { now: Timestamp(99), jobs } => jobs.0,
        other => panic!("{other:?}"),
    }
}

#[test]
fn empty_list_is_an_answer_without_jobs() {
    assert_eq!(read(&written(&[])), []);
}

#[test]
fn jobs_of_one_request_share_it_on_the_wire_and_after_it() {
    let first = job_view(1);
    let second = JobView { id: JobId(2), name: "other".into(), ..first.clone() };
    let bytes = written(&[first.clone(), second.clone()]);
    let json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(json["jobs"]["jobs"]["common"].as_array().unwrap().len(), 1);
    let jobs = read(&bytes);
    assert_eq!(jobs, [first, second]);
    assert!(Arc::ptr_eq(&jobs[0].spec, &jobs[1].spec));
}

/// A change of each field that jobs share, beside one that has a field of its own for it.
#[test]
fn job_that_differs_in_a_shared_field_keeps_its_own_value() {
    let base = job_view(1);
    let changes: [fn(&mut JobView); 14] = [
        |job| job.spec = Arc::new((*job.spec).clone()),
        |job| job.partition = "other".into(),
        |job| job.account = "other".into(),
        |job| job.qos = "other".into(),
        |job| job.tres = Arc::new(Tres::parse("cpu=9").unwrap()),
        |job| job.time_limit = TimeLimit::Minutes(77),
        |job| job.nodes = Range::exactly(7),
        |job| job.cpus = 77,
        |job| job.tasks = 77,
        |job| job.state = JobState::Failed,
        |job| job.hold = Some(Hold::Admin),
        |job| job.default_memory = Some(DefaultMemory::PerCpu(model::amount::Bytes(7))),
        |job| job.reason = Reason::Priority,
        |job| job.array = None,
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let mut other = JobView { id: JobId(2), ..base.clone() };
        change(&mut other);
        let jobs = [base.clone(), other];
        assert_eq!(read(&written(&jobs)), jobs, "change {at}");
    }
}

#[test]
fn own_fields_of_a_job_come_back() {
    let mut job = job_view(1);
    let extras = crate::view::JobExtras { pre_suspend_s: 3, ..Default::default() };
    job.het = Some(HetComponent { first: JobId(1), offset: 0, size: 2 });
    job.run = Some(RunId(5));
    job.eligible = Some(Timestamp(2));
    job.start = Some(Timestamp(3));
    job.end = Some(Timestamp(4));
    (job.priority, job.restarts, job.suspended_s) = (5, 6, 7);
    job.exit = ExitStatus { code: 1, signal: 2 };
    job.derived_exit = ExitStatus { code: 3, signal: 4 };
    job.usage.cpu_user_us = 8;
    job.dependency = Some("afterok:7(unfulfilled)".into());
    job.last_planned = Some(Timestamp(9));
    job.cancelled_by = Some(10);
    job.extras = Some(Box::new(extras));
    job.sched_nodes = Some("n1".into());
    let allocation = Allocation { partition: "main".into(), nodes: Vec::new() };
    job.allocation = Some(Box::new(allocation));
    let jobs = [job];
    assert_eq!(read(&written(&jobs)), jobs);
    let listed = serde_json::to_string(&JobList(jobs.to_vec())).unwrap();
    assert_eq!(serde_json::from_str::<JobList>(&listed).unwrap().0, jobs);
}

#[test]
fn list_that_does_not_hold_together_is_refused() {
    for (list, why) in [
        (r#"{"rows":[],"common":[]}"#, "rows come before what they share"),
        (
            r#"{"common":[],"rows":[{"of":0,"id":1,"name":"a","submit":0}]}"#,
            "a row points at 0 of 0 common parts",
        ),
        (r#"[]"#, "common parts and then rows of jobs"),
    ] {
        let error = serde_json::from_str::<JobList>(list).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let unknown = r#"{"version":2,"common":[],"rows":[],"more":{}}"#;
    assert_eq!(serde_json::from_str::<JobList>(unknown).unwrap().0, []);
}

proptest! {
    #[test]
    fn truncated_answer_is_an_error_and_no_panic(cut in any::<prop::sample::Index>()) {
        let bytes = written(&[job_view(1), job_view(2)]);
        let cut = cut.index(bytes.len());
        prop_assert!(serde_json::from_slice::<Answer>(&bytes[..cut]).is_err());
    }
}
