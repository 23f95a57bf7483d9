//! Steps in a job that is there, and in one of their own.

use super::tests::{caller, submitter};
use super::*;
use crate::option::invocation::{self, Caller, Invocation};
use crate::request::step::{Endpoint, StepAllocation};
use model::time::TimeLimit;
use wire::step::{StepInput, StepStart};

#[test]
fn a_step_asks_for_nodes_only_in_an_existing_allocation() {
    let options = JobOptions {
        ntasks: Some(1),
        nodes: Some(model::range::Range::exactly(2)),
        nodelist: vec!["node2".into()],
        time: Some(TimeLimit::Minutes(5)),
        ..JobOptions::default()
    };
    let argv = ["/bin/echo".to_owned(), "hi".to_owned()];
    let of = |within| {
        let endpoint = Endpoint {
            listen: vec!["127.0.0.1:1".into()],
            network_stack: None,
            key: "k".into(),
            ticket: 7,
        };
        step::launch(&options, &argv, &submitter(Command::Srun), within, endpoint, StepInput::All)
    };
    let (given, notes) = of(StepAllocation::Existing);
    assert_eq!((given.tasks, given.nodes, given.name.as_str()), (Some(1), Some(1), "echo"));
    assert_eq!((given.node_list.len(), notes.len()), (1, 1));
    assert_eq!(given.time_limit, Some(TimeLimit::Minutes(5)));
    let (own, notes) = of(StepAllocation::Own);
    assert_eq!(own.time_limit, None, "it is its job's");
    assert_eq!((own.nodes, own.node_list.len(), notes.len()), (None, 0, 0));
    assert_eq!(own.umask, 0o027);
    assert!(own.environment.contains("FOO=1\0"));
}

#[test]
fn tasks_wait_for_the_prolog_of_srun() {
    let starts = |args: &[&str]| given(args, &[]).0.starts;
    assert_eq!(starts(&[]), StepStart::AsSite);
    assert_eq!(starts(&["--prolog=./before"]), StepStart::OnGo);
    assert_eq!(starts(&["--prolog=none"]), StepStart::AtOnce);
    let settled = |said: StepStart| [false, true].map(|site| said.settled(site));
    assert_eq!(settled(StepStart::AsSite), [StepStart::AtOnce, StepStart::OnGo]);
    assert_eq!(settled(StepStart::AtOnce), [StepStart::AtOnce; 2], "and that of an older srun");
    assert_eq!(settled(StepStart::OnGo), [StepStart::OnGo; 2]);
}

/// A step's launch and remarks, as `srun ARGS` in a job with these variables asks for it.
fn given(args: &[&str], variables: &[(&str, &str)]) -> (wire::step::StepLaunch, Vec<String>) {
    let variable = |name: &str| {
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    };
    let caller = Caller { variable: &variable, ..caller() };
    let words: Vec<&str> = args.iter().copied().chain(["hostname"]).collect();
    let Ok(Invocation::Submission(read)) = invocation::launch(Command::Srun, &words, &caller)
    else {
        panic!("{args:?} is refused");
    };
    let (options, argv) = &read.components[0];
    let endpoint =
        Endpoint { listen: Vec::new(), network_stack: None, key: String::new(), ticket: 7 };
    let submitter = submitter(Command::Srun);
    step::launch(options, argv, &submitter, StepAllocation::Existing, endpoint, StepInput::All)
}

/// Lines and numbers of a real Slurm 22.05, in a job `-N4 --ntasks-per-node=4`.
#[test]
fn a_step_takes_the_numbers_of_its_job_and_notes_what_it_changes() {
    let job =
        [("SLURM_JOB_NUM_NODES", "4"), ("SLURM_NTASKS", "16"), ("SLURM_NTASKS_PER_NODE", "4")];
    let fewer = |tasks: u32| {
        Some(format!("Warning: can't run {tasks} processes on 4 nodes, setting nnodes to {tasks}"))
    };
    let ignored = |each: u32, tasks: u32, nodes: u32| {
        Some(format!(
            "Warning: can't honor --ntasks-per-node set to {each} which doesn't match the \
             requested tasks {tasks} with the number of requested nodes {nodes}. Ignoring --ntasks-per-node."
        ))
    };
    type Row<'a> = (&'a [&'a str], Option<String>, Option<u32>, Option<u32>);
    let table: [Row<'_>; 11] = [
        (&[], None, Some(16), Some(4)),
        (&["-n8"], ignored(4, 8, 4), Some(8), Some(4)),
        (&["-n8", "-N2"], None, Some(8), Some(2)),
        (&["-n3"], fewer(3), Some(3), Some(3)),
        (&["-n4", "-c2"], None, Some(4), Some(4)),
        (&["-n5", "-N1"], ignored(4, 5, 1), Some(5), Some(1)),
        (&["-N2-3", "-n7"], ignored(4, 7, 2), Some(7), Some(2)),
        (&["-n4", "--ntasks-per-node=2"], ignored(2, 4, 4), Some(4), Some(4)),
        (&["-n5", "-N2", "--ntasks-per-node=2"], None, Some(5), Some(2)),
        (&["-m", "*,Pack", "-n6"], ignored(4, 6, 1), Some(6), Some(1)),
        (&["-m", "arbitrary", "-w", "a,b,a"], None, None, None),
    ];
    for (args, note, tasks, nodes) in table {
        let (launch, notes) = given(args, &job);
        assert_eq!(notes, note.into_iter().collect::<Vec<_>>(), "{args:?}");
        assert_eq!((launch.tasks, launch.nodes), (tasks, nodes), "{args:?}");
    }
}

#[test]
fn step_options_choose_how_the_allocation_is_shared() {
    let exact = |args: &[&str]| given(args, &[]).0.shape.exact;
    assert!(exact(&["--exact"]) && exact(&["-c2"]) && exact(&["--exclusive"]) && !exact(&["-n1"]));
    let gres = |args: &[&str], job: &[(&str, &str)]| given(args, job).0.shape.gres.map(|g| g.len());
    assert_eq!((gres(&[], &[]), gres(&["--gres=none"], &[])), (None, Some(0)));
    assert_eq!(gres(&["--gpus-per-task=1"], &[]), Some(1));
    assert_eq!(gres(&[], &[("SLURM_GPUS", "4")]), None, "the job's total is not the step's");
    let of_job = [("SLURM_GPUS_PER_NODE", "4")];
    assert_eq!((gres(&[], &of_job), gres(&["--gres=gpu:1"], &of_job)), (None, Some(1)));
    let told = |args: &[&str]| given(args, &[]).0.distribution;
    let table = [
        ("block:cyclic", Some("block:cyclic")),
        ("cyclic", Some("cyclic")),
        ("plane=2", Some("plane")),
        ("block,Pack", Some("block,pack")),
        ("*", None),
    ];
    for (asked, text) in table {
        assert_eq!(told(&["-m", asked]).as_deref(), text, "{asked}");
    }
    let planes = given(&[], &[("SLURM_DISTRIBUTION", "plane"), ("SLURM_DIST_PLANESIZE", "3")]);
    assert_eq!(planes.0.shape.distribution, Some(model::step::TaskDistribution::Plane(3)));
}
