//! Prolog and epilog programs of the node, of tasks, of `srun` and of the server: their environment, their effect, and what
//! happens to job and node when they fail. Needs root.

use crate::harness::{Cluster, until};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

const ONE_NODE: &str = "\
ClusterName=test
SlurmdParameters=config_overrides
GresTypes=gpu AuthInfo=cred_expire=0
DefMemPerCPU=100
KillWait=1
NodeName=node1 CPUs=8 RealMemory=4000 Gres=gpu:2
PartitionName=main Nodes=node1 Default=YES State=UP
";

/// A cluster with these programs as `(key, name, text)`.
fn up_with(programs: &[(&str, &str, &str)], more: &str) -> Cluster {
    let cluster = Cluster::folder("");
    let mut conf = format!("{ONE_NODE}{more}");
    for (key, name, text) in programs {
        let path = cluster.write_program(name, text);
        conf.push_str(&format!("{key}={path}\n"));
    }
    cluster.write_conf("slurm.conf", &conf);
    cluster.start();
    cluster
}

fn wrap(cluster: &Cluster, options: &[&str], command: &str) -> u32 {
    let mut args = options.to_vec();
    args.extend(["-o", "out", "--wrap", command]);
    cluster.submit(&args)
}

#[test]
fn root_up_prolog_and_epilog_run_as_root_with_only_the_jobs_variables() {
    let tell = "env | sort > $(dirname $0)/../work/NAME.env; id -u >> $(dirname $0)/../work/order";
    let cluster = up_with(
        &[
            ("Prolog", "prolog", &tell.replace("NAME", "prolog")),
            ("Epilog", "epilog", &tell.replace("NAME", "epilog")),
        ],
        "",
    );
    let job = wrap(
        &cluster,
        &["--gres=gpu:1", "--comment=a comment", "--export=ALL,SECRET=x"],
        "echo script >> order; exit 3",
    );
    assert_eq!(cluster.await_end(job), "FAILED|3:0");
    assert_eq!(cluster.read("order"), "0\nscript\n0\n");
    let (before, after) = (cluster.read("prolog.env"), cluster.read("epilog.env"));
    for (text, context) in [(&before, "prolog_slurmd"), (&after, "epilog_slurmd")] {
        for line in [
            format!("SLURM_JOB_ID={job}"),
            format!("SLURM_SCRIPT_CONTEXT={context}"),
            "SLURM_JOB_UID=0".to_owned(),
            "SLURM_JOB_USER=root".to_owned(),
            "SLURM_JOB_GPUS=0".to_owned(),
            "SLURM_JOB_PARTITION=main".to_owned(),
            "SLURM_JOB_COMMENT=a comment".to_owned(),
            "SLURMD_NODENAME=node1".to_owned(),
            "SLURM_CLUSTER_NAME=test".to_owned(),
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        assert!(!text.contains("SECRET"), "nothing of the user's");
    }
    assert!(
        !before.contains("EXIT_CODE") && after.contains("SLURM_JOB_EXIT_CODE=768\n"),
        "{after}"
    );
    assert!(after.contains("SLURM_JOB_EXIT_CODE2=3:0\n"), "{after}");
    assert!(cluster.groups().is_empty(), "no group is left");
}

#[test]
fn root_up_a_folder_of_prologs_runs_in_name_order() {
    let cluster = Cluster::folder("");
    let folder = cluster.path("conf").join("prolog.d");
    std::fs::create_dir(&folder).unwrap();
    for name in ["20-second", "10-first", "90-last.off"] {
        let text = format!("echo {name} >> {}", cluster.path("work").join("order").display());
        let path = cluster.write_program(name, &text);
        std::fs::rename(path, folder.join(name)).unwrap();
    }
    cluster.write_conf(
        "slurm.conf",
        &format!(
            "{ONE_NODE}Prolog={0}/*0-*t\nEpilog={0}/*.none\nPrologFlags=Serial\n",
            folder.display()
        ),
    );
    cluster.start();
    let job = wrap(&cluster, &[], "echo script >> order");
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    assert_eq!(cluster.read("order"), "10-first\nscript\n", "20-second does not match");
    // A pattern without matches means no program, and drains nothing.
    cluster.shell("srun true").ok();
    assert_eq!(cluster.await_end(job + 1), "COMPLETED|0:0");
}

#[test]
fn root_up_a_failing_prolog_drains_the_node_and_holds_the_job() {
    let cluster = up_with(&[("Prolog", "prolog", "exit 1")], "");
    let job = wrap(&cluster, &[], "touch ran");
    cluster.await_state(job, "PENDING|launch failed requeued held");
    assert_eq!(cluster.node_states(), "drained|Prolog error");
    assert_eq!(cluster.read("ran"), "");
    // With a working prolog the resumed node runs the released job.
    cluster.write_program("prolog", "exit 0");
    cluster.shell("scontrol update node=node1 state=resume").ok();
    cluster.shell(&format!("scontrol release {job}")).ok();
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    assert!(cluster.path("work").join("ran").exists());
}

#[test]
fn root_up_a_world_writable_prolog_is_not_run() {
    let cluster = up_with(&[("Prolog", "prolog", "touch /tmp/never")], "");
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(cluster.path("bin").join("prolog"), open).unwrap();
    let job = wrap(&cluster, &["--no-requeue"], "touch ran");
    assert_eq!(cluster.await_end(job), "FAILED|0:53");
    assert_eq!(cluster.node_states(), "drained|Prolog error");
    until("the server's log says why", || {
        cluster.log("server").contains("it may be written by others").then_some(())
    });
}

#[test]
fn root_up_a_prolog_over_its_timeout_is_killed_with_its_children_and_drains() {
    let slow = "setsid sleep 1000 & echo $! > $(dirname $0)/../work/daemon; sleep 1000";
    let cluster = up_with(&[("Epilog", "epilog", slow)], "PrologEpilogTimeout=5\n");
    let job = wrap(&cluster, &[], "true");
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    until("the node is drained", || {
        (cluster.node_states() == "drained|Epilog error").then_some(())
    });
    let daemon = cluster.await_file("daemon", |text| text.ends_with('\n'));
    let daemon: i32 = daemon.trim().parse().expect("a pid");
    until("its child is dead", || (!crate::harness::is_alive(daemon)).then_some(()));
    assert!(cluster.groups().is_empty(), "no group is left");
}

/// `/dev/zero` plays a GPU that the job may not open; the job's memory limit is below what the prolog uses.
#[test]
fn root_up_a_prolog_is_outside_of_the_jobs_limits() {
    let uses = "exec 3< $(dirname $0)/../gpu0 || exit 1; \
                head -c 100m /dev/zero | tail -c 100m | wc -c >> $(dirname $0)/../work/used";
    for plugin in ["autodetect", "cgroup/v1"] {
        let cluster = Cluster::folder("");
        let mut gres = String::new();
        for name in ["gpu0", "gpu1"] {
            let path = cluster.path(name);
            let mut made = Command::new("mknod");
            made.args(["-m", "666"]).arg(&path).args(["c", "1", "5"]);
            assert!(made.status().expect("run mknod").success(), "run as root");
            gres.push_str(&format!("Name=gpu File={}\n", path.display()));
        }
        cluster.write_conf("gres.conf", &gres);
        let conf = format!("CgroupPlugin={plugin}\nConstrainDevices=yes\nConstrainRAMSpace=yes\n");
        cluster.write_conf("cgroup.conf", &conf);
        let path = cluster.write_program("program", uses);
        cluster.write_conf("slurm.conf", &format!("{ONE_NODE}Prolog={path}\nEpilog={path}\n"));
        cluster.start();
        let look = "(exec 3< ../gpu0) 2> /dev/null && echo opened; echo done";
        let job = wrap(&cluster, &["--mem=30"], look);
        assert_eq!(cluster.await_end(job), "COMPLETED|0:0", "{plugin}");
        assert_eq!(cluster.read("out"), "done\n", "{plugin}: the job itself may not");
        let both = "104857600\n104857600\n";
        cluster.await_file("used", |text| text == both);
        until("no group is left", || cluster.groups().is_empty().then_some(()));
        assert_eq!(cluster.node_states(), "idle|none", "{plugin}");
    }
}

fn daemon_of(cluster: &Cluster) -> i32 {
    let text = cluster.await_file("daemon", |text| text.ends_with('\n'));
    text.trim().parse().expect("a pid")
}

const DAEMON: &str = "setsid sleep 1000 & echo $! > $(dirname $0)/../work/new; cd $(dirname $0)/../work; mv new daemon";

#[test]
fn root_up_processes_left_by_a_prolog_end_with_the_job() {
    let alive = "kill -0 $(cat $(dirname $0)/../work/daemon) && touch $(dirname $0)/../work/seen";
    let with_epilog: &[_] = &[("Prolog", "prolog", DAEMON), ("Epilog", "epilog", alive)];
    for (programs, seen) in [(&with_epilog[..1], false), (with_epilog, true)] {
        let cluster = up_with(programs, "");
        // The prolog is in no control group of the job, so its limits do not apply.
        let job = wrap(
            &cluster,
            &[],
            "kill -0 $(cat daemon) && ! grep job_${SLURM_JOB_ID}_1/ /proc/$(cat daemon)/cgroup",
        );
        assert_eq!(cluster.await_end(job), "COMPLETED|0:0", "{}", cluster.read("out"));
        let daemon = daemon_of(&cluster);
        until("the daemon is dead", || (!crate::harness::is_alive(daemon)).then_some(()));
        until("no group is left", || cluster.groups().is_empty().then_some(()));
        assert_eq!(cluster.path("work").join("seen").exists(), seen, "the epilog still met it");
        assert_eq!(cluster.node_states(), "idle|none");
    }
}

#[test]
fn root_up_cancelling_a_job_ends_its_prolog_and_does_not_drain_the_node() {
    let cluster = up_with(&[("Prolog", "prolog", &format!("{DAEMON}; sleep 1000"))], "");
    let job = wrap(&cluster, &[], "touch ran");
    let daemon = daemon_of(&cluster);
    cluster.sluice(&["scancel", &job.to_string()]).ok();
    assert!(cluster.await_end(job).starts_with("CANCELLED"));
    until("the daemon is dead", || (!crate::harness::is_alive(daemon)).then_some(()));
    until("no group is left", || cluster.groups().is_empty().then_some(()));
    assert_eq!(cluster.node_states(), "idle|none");
    assert!(!cluster.path("work").join("ran").exists());
}

#[test]
fn root_up_a_waiting_serial_prolog_is_dropped_with_its_job() {
    let text =
        "cd $(dirname $0)/../work; touch $SLURM_JOB_ID; until [ -e go ]; do sleep 0.05; done";
    let cluster = up_with(&[("Prolog", "prolog", text)], "PrologFlags=Serial\n");
    let first = wrap(&cluster, &["-n1"], "true");
    cluster.await_file(&first.to_string(), |_| true);
    let second = wrap(&cluster, &["-n1"], "true");
    let waiting = format!("job_{second}_1.prolog");
    until("the second waits for its turn", || {
        cluster.groups().iter().any(|group| group.ends_with(&waiting)).then_some(())
    });
    cluster.sluice(&["scancel", &second.to_string()]).ok();
    assert!(cluster.await_end(second).starts_with("CANCELLED"));
    cluster.write("go", "");
    assert_eq!(cluster.await_end(first), "COMPLETED|0:0");
    assert!(!cluster.path("work").join(second.to_string()).exists(), "it never ran");
    until("no group is left", || cluster.groups().is_empty().then_some(()));
    assert_eq!(cluster.node_states(), "idle|none");
}

#[test]
fn root_up_a_prolog_ends_with_its_killed_supervisor_with_and_without_an_agent() {
    let text = format!("echo $PPID > $(dirname $0)/../work/supervisor; {DAEMON}; sleep 1000");
    for agent_lives in [true, false] {
        let cluster = up_with(&[("Prolog", "prolog", &text)], "");
        let job = wrap(&cluster, &["--no-requeue"], "touch ran");
        let daemon = daemon_of(&cluster);
        let supervisor = cluster.read("supervisor").trim().parse().expect("a pid");
        if !agent_lives {
            cluster.kill("agent");
            cluster.kill("server");
        }
        crate::harness::signal(supervisor, "KILL");
        if !agent_lives {
            until("the supervisor is dead", || {
                (!crate::harness::is_alive(supervisor)).then_some(())
            });
            assert!(crate::harness::is_alive(daemon), "nobody was there to kill it");
            cluster.start();
        }
        until("the daemon is dead", || (!crate::harness::is_alive(daemon)).then_some(()));
        until("no group is left", || cluster.groups().is_empty().then_some(()));
        cluster.await_end(job);
        assert!(!cluster.path("work").join("ran").exists());
    }
}

#[test]
fn root_up_without_prolog_flags_alloc_the_prolog_runs_before_the_first_step() {
    let text = "echo prolog >> $(dirname $0)/../work/order";
    for (flags, order) in [("", "shell\nprolog\nstep\n"), ("PrologFlags=Alloc\n", "prolog\n")] {
        let cluster = up_with(&[("Prolog", "prolog", text)], flags);
        let alloc = flags.contains("Alloc");
        // With `Alloc` the prolog runs without any step.
        let inner = if alloc {
            "until [ -e order ]; do sleep 0.05; done"
        } else {
            "echo shell >> order; srun sh -c \"echo step >> order\""
        };
        cluster.shell(&format!("salloc -n1 sh -c '{inner}'")).ok();
        assert_eq!(cluster.read("order"), order, "{flags}");
    }
}

#[test]
fn root_up_a_task_prolog_changes_the_task_and_the_task_epilog_follows() {
    let site =
        "echo export SITE=1; echo export BOTH=site; echo unset GONE; echo print from the site";
    let cluster = up_with(
        &[
            ("TaskProlog", "task_prolog", site),
            (
                "TaskEpilog",
                "task_epilog",
                "echo $(id -u) $SLURM_PROCID >> $(dirname $0)/../work/after",
            ),
        ],
        "",
    );
    let own =
        cluster.write_program("own", "echo export BOTH=own$SITE; test -n \"$SLURM_TASK_PID\"");
    let after = cluster.write_program("own_after", "echo own >> $(dirname $0)/../work/after");
    let said = cluster.shell(&format!(
        "GONE=1 srun -n2 -l --task-prolog={own} --task-epilog={after} sh -c 'echo $SITE $BOTH ${{GONE-unset}}'"
    ));
    let text = said.ok();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        ["0: 1 own1 unset", "0: from the site", "1: 1 own1 unset", "1: from the site"]
    );
    let after = cluster.read("after");
    let mut lines: Vec<&str> = after.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0 0", "0 1", "own", "own"]);
    // The batch script counts as a task.
    let job = wrap(&cluster, &[], "echo $SITE $BOTH");
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    assert_eq!(cluster.read("out"), "from the site\n1 site\n");
    assert_eq!(cluster.read("after").lines().count(), 5);
}

#[test]
fn root_up_srun_prolog_and_epilog_run_on_the_sruns_host() {
    // The programs are slow, and the tasks wait for them.
    let slow = |word: &str| format!("sleep 0.3; echo {word} >> $(dirname $0)/../work/order");
    let cluster = up_with(
        &[
            ("SrunProlog", "srun_prolog", &slow("site before")),
            ("SrunEpilog", "srun_epilog", &slow("site after")),
        ],
        "",
    );
    let own = cluster.write_program("own", &slow("own"));
    let task = "sh -c \"echo task >> order\"";
    for (line, order) in [
        (format!("srun {task}"), "site before\ntask\nsite after\n"),
        (format!("srun --prolog={own} --epilog=none {task}"), "own\ntask\n"),
        (format!("srun --prolog=none {task}"), "task\nsite after\n"),
    ] {
        for line in [line.clone(), format!("salloc -n1 sh -c '{line}'")] {
            cluster.write("order", "");
            cluster.shell(&line).ok();
            assert_eq!(cluster.read("order"), order, "{line}");
        }
    }
}

#[test]
fn root_up_a_step_that_waits_for_the_srun_prolog_can_be_cancelled() {
    let waits = "echo $$ > $(dirname $0)/../work/waits; exec sleep 1000";
    let cluster = up_with(&[("SrunProlog", "srun_prolog", waits)], "");
    let await_program = || {
        let pid = cluster.await_file("waits", |text| text.ends_with('\n'));
        cluster.write("waits", "");
        pid.trim().parse::<i32>().expect("a pid")
    };
    // Only the step is cancelled: the script goes on.
    let script = "srun touch ran; echo $? > code; srun --prolog=none echo next";
    let job = wrap(&cluster, &[], script);
    let program = await_program();
    cluster.shell(&format!("scancel {job}.0")).ok();
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    assert_ne!(cluster.read("code"), "0\n");
    assert!(cluster.read("out").ends_with("next\n"), "{}", cluster.read("out"));
    until("its program is dead", || (!crate::harness::is_alive(program)).then_some(()));
    // The whole job is cancelled, and an `srun` interrupted.
    for job in [job + 1, job + 2] {
        let srun = cluster.spawn_shell_with_errors("exec srun touch ran");
        let program = await_program();
        if job % 2 == 0 {
            drop(cluster.shell(&format!("scancel {job}")).ok())
        } else {
            crate::harness::signal(srun.id() as i32, "INT")
        }
        let said = srun.wait_with_output().expect("srun ends");
        assert!(!said.status.success(), "{said:?}");
        until("its program is dead", || (!crate::harness::is_alive(program)).then_some(()));
        cluster.await_end(job);
    }
    assert!(!cluster.path("work").join("ran").exists());
    assert!(cluster.groups().is_empty(), "no group is left");
}

#[test]
fn root_up_a_failing_task_prolog_ends_its_task() {
    let cluster = up_with(&[("TaskProlog", "task_prolog", "echo print said; exit 3")], "");
    let said = cluster.shell("srun touch ran");
    assert_eq!((said.code, said.stdout.as_str()), (3, "said\n"), "{}", said.stderr);
    assert!(said.stderr.contains("error: TaskProlog failed status=3\n"), "{}", said.stderr);
    let job = wrap(&cluster, &[], "touch ran");
    assert_eq!(cluster.await_end(job), "FAILED|3:0");
    assert!(!cluster.path("work").join("ran").exists());
    assert_eq!(cluster.node_states(), "idle|none", "the node is not to blame");
}

/// The server's programs run as its user, who may write to the work folder because everybody may.
fn telling(name: &str) -> String {
    format!(
        "echo {name} $SLURM_JOB_ID $SLURM_SCRIPT_CONTEXT $SLURM_JOB_NODELIST ${{SLURM_JOB_EXIT_CODE2-}} \
         >> $(dirname $0)/../work/$SLURM_JOB_ID.{name}"
    )
}

#[test]
fn root_up_prolog_slurmctld_and_epilog_slurmctld_run_around_the_job() {
    let before = format!(
        "{}; until [ -e $(dirname $0)/../work/go ]; do sleep 0.05; done",
        telling("before")
    );
    let cluster = up_with(
        &[("PrologSlurmctld", "before", &before), ("EpilogSlurmctld", "after", &telling("after"))],
        "",
    );
    let job = wrap(&cluster, &[], "test -e go && exit 4");
    let text = cluster.await_file(&format!("{job}.before"), |text| text.ends_with('\n'));
    assert_eq!(text, format!("before {job} prolog_slurmctld node1\n"));
    cluster.write("go", "");
    assert_eq!(cluster.await_end(job), "FAILED|4:0");
    let text = cluster.await_file(&format!("{job}.after"), |text| text.ends_with('\n'));
    assert_eq!(text, format!("after {job} epilog_slurmctld node1 4:0\n"));
    // A step requested while the program runs waits for it.
    std::fs::remove_file(cluster.path("work").join("go")).unwrap();
    let held = cluster.spawn_shell("salloc -n1 srun echo from the step");
    let job = job + 1;
    cluster.await_file(&format!("{job}.before"), |_| true);
    cluster.write("go", "");
    let said = held.wait_with_output().expect("salloc ends");
    assert_eq!(String::from_utf8_lossy(&said.stdout), "from the step\n");
}

#[test]
fn root_up_a_failing_prolog_slurmctld_requeues_or_cancels_the_job() {
    let fails =
        format!("{}; cd $(dirname $0)/../work; test -e seen || ! touch seen", telling("before"));
    let cluster = up_with(&[("PrologSlurmctld", "before", &fails)], "");
    let job = wrap(&cluster, &[], "true");
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    assert_eq!(cluster.read(&format!("{job}.before")).lines().count(), 2);
    std::fs::remove_file(cluster.path("work").join("seen")).unwrap();
    let job = wrap(&cluster, &["--no-requeue"], "true");
    assert!(cluster.await_end(job).starts_with("CANCELLED"));
    assert_eq!(cluster.node_states(), "idle|none", "the node is not to blame");
}
