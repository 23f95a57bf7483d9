//! What a newcomer meets in the first hour: answers that say what to do.

use crate::harness::{Cluster, TWO_NODES, until, user_name};

#[test]
fn up_help_has_topics_and_the_help_of_verbs() {
    let cluster = Cluster::folder(TWO_NODES);
    let list = cluster.sluice(&["help"]).ok();
    for topic in ["resources", "limits", "states", "exit-codes", "reasons"] {
        assert!(list.contains(&format!("\n  {topic}")), "{list}");
        assert!(!cluster.sluice(&["help", topic]).ok().is_empty());
    }
    assert!(cluster.sluice(&["help", "exit", "codes"]).ok().contains("0:125"));
    assert!(cluster.sluice(&["help", "top"]).ok().contains("--once"));
    assert!(cluster.sluice(&["logs", "--help"]).ok().contains("Examples:\n  sluice logs "));
    // The environment names a server here: that is no option that was given.
    let said = cluster.sluice(&["explain"]);
    assert!(said.code == 2 && said.stderr.contains("Usage: sluice explain "), "{said:?}");
    assert!(!said.stderr.contains("--state") && !said.stderr.contains("--server"), "{said:?}");
    let said = cluster.sluice(&["help", "nonsense"]);
    assert_eq!(said.code, 1);
    assert!(said.stderr.contains("the topics are resources, limits"), "{}", said.stderr);
}

#[test]
fn up_link_of_dstacks_name_is_there_and_says_its_name() {
    let cluster = Cluster::up(TWO_NODES);
    let help = cluster.shell("dstack --help").ok();
    assert!(help.contains("Usage: dstack "), "{help}");
    let said = cluster.shell("dstack ps --no-such-option");
    assert!(said.code == 2 && said.stderr.contains("Usage: dstack ps"), "{said:?}");
    for line in ["dstack logs nothing", "dstack stop -y nothing"] {
        let said = cluster.shell(line);
        assert!(said.code != 0 && said.stderr.starts_with("dstack: error: "), "{line}: {said:?}");
    }
    let said = cluster.sluice(&["logs", "nothing"]);
    assert!(said.stderr.starts_with("sluice: error: "), "{said:?}");
    cluster.submit_sleeper("-J seen");
    let listed = cluster.shell("dstack ps").ok();
    assert!(listed.contains("seen"), "{listed}");
}

#[test]
fn up_job_that_asks_for_more_than_its_partition_gives_is_noted_and_explained_with_numbers() {
    let cluster = Cluster::up(TWO_NODES);
    let said = cluster.sluice(&["sbatch", "-N3", "--wrap", "true"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let note = "sbatch: note: partition gpu gives a job at most 2 nodes, 3 asked: the job waits";
    assert!(said.stderr.starts_with(note), "{}", said.stderr);
    for command in ["srun", "salloc"] {
        let file = format!("{command}.err");
        let mut waits = cluster.spawn_shell(&format!("{command} -N3 -J wide true 2> {file}"));
        let note = note.replace("sbatch: ", &format!("{command}: "));
        cluster.await_file(&file, |text| text.contains(&note));
        cluster.sluice(&["scancel", "-n", "wide"]).ok();
        waits.wait().expect("it was waited for");
    }
    let explain = |job: u32, what: &str| {
        until(what, || {
            let said = cluster.sluice(&["explain", &job.to_string()]).stdout;
            said.contains(what).then_some(())
        });
    };
    // As in Slurm, no limit at all is asked for by 0.
    let said = cluster.sluice(&["sbatch", "-t", "0", "--wrap", "true"]);
    let note = "sbatch: note: partition gpu gives a job at most 7-00:00:00, UNLIMITED asked";
    assert!(said.code == 0 && said.stderr.starts_with(note), "{said:?}");
    explain(
        1,
        "It asks for 3 nodes, another number than its partition gives a job: gpu gives at most 2 nodes.",
    );
    let said =
        cluster.sluice(&["sbatch", "--parsable", "-p", "debug", "-t", "60", "--wrap", "true"]);
    let note = "sbatch: note: partition debug gives a job at most 00:30:00, 01:00:00 asked: \
                the job waits until that changes\n";
    assert_eq!((said.code, said.stderr.as_str()), (0, note));
    let long: u32 = said.stdout.trim().parse().expect("a job id");
    // One of its partitions gives it.
    let said = cluster.sluice(&["sbatch", "-H", "-p", "debug,gpu", "-t", "60", "--wrap", "true"]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    explain(
        long,
        "Its time limit (01:00:00) is beyond its partition's: debug gives at most 00:30:00.",
    );
    let drain = ["scontrol", "update", "nodename=node[1-2]", "state=drain", "reason=new disks"];
    cluster.sluice(&drain).ok();
    let waits = cluster.submit(&["--wrap", "true"]);
    explain(waits, &format!("node1 is out of service by {} since ", user_name()));
    explain(waits, ": new disks.");
}

#[test]
fn up_job_for_gpus_where_there_are_none_is_refused_with_a_note() {
    let conf = "\
ClusterName=small
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=n1 CPUs=2 RealMemory=1000
PartitionName=main Nodes=n1 Default=YES
";
    let cluster = Cluster::up(conf);
    let said = cluster.sluice(&["sbatch", "--gres=gpu:1", "--wrap", "true"]);
    assert_eq!(said.code, 1, "{}", said.stdout);
    assert!(said.stderr.contains("note: no node of this cluster has GPUs"), "{}", said.stderr);
    // dstack's side says it in dstack's words, and points at no amount that is not to blame.
    let task =
        "type: task\nname: train\ncommands: [a]\nresources: {cpu: 1, memory: 64MB, gpu: A100}\n";
    cluster.write("train.dstack.yml", task);
    let refused = cluster.sluice(&["apply", "-y", "-f", "train.dstack.yml"]);
    let words = "no node of this cluster has GPUs; `gpu: ";
    assert!(refused.code != 0 && refused.stdout.contains(words), "{refused:?}");
    let words = format!("run train was not submitted: {words}");
    assert!(refused.stderr.contains(&words), "{refused:?}");
    assert!(!format!("{refused:?}").contains("is exact"), "{refused:?}");
}

#[test]
fn up_doctor_fails_where_a_node_is_out_of_service_and_says_alike_nodes_once() {
    let cluster = Cluster::up(TWO_NODES);
    let said = cluster.sluice(&["doctor"]).ok();
    assert!(said.contains("nodes node[1-2]: idle, declared"), "{said}");
    assert!(said.ends_with("nothing is out of service\n"), "{said}");
    let drain = ["scontrol", "update", "nodename=node1", "state=drain", "reason=new disks"];
    cluster.sluice(&drain).ok();
    let said = cluster.sluice(&["doctor", "--json"]);
    assert_eq!(said.code, 1);
    let found: serde_json::Value = serde_json::from_str(&said.stdout).expect("JSON");
    assert_eq!(
        found["problems"],
        serde_json::json!([{
            "problem": "node node1 is drain: new disks",
            "remedy": "scontrol update NodeName=node1 State=RESUME",
        }])
    );
    let job = cluster.submit_sleeper("");
    cluster.await_state(job, "RUNNING");
    let said = cluster.sluice(&["down"]).ok();
    let left = format!("sluice is down\n1 job goes on running: {job}. After the next `sluice up`,");
    assert!(said.starts_with(&left), "{said}");
    assert_eq!(cluster.sluice(&["doctor"]).code, 1, "no server answers");
}

#[test]
fn up_down_with_jobs_says_how_many_it_ended() {
    let cluster = Cluster::up(TWO_NODES);
    cluster.await_state(cluster.submit_sleeper(""), "RUNNING");
    cluster.submit_sleeper("-H");
    let said = cluster.sluice(&["down", "--jobs"]).ok();
    assert_eq!(said, "2 jobs were ended\nsluice is down\n");
}

#[test]
fn up_making_a_project_does_not_change_what_its_makers_other_jobs_are_charged_to() {
    let cluster = Cluster::up(TWO_NODES);
    cluster.sluice(&["project", "create", "atlas"]).ok();
    let account = |job: u32| {
        let job = job.to_string();
        cluster.sluice(&["squeue", "-h", "-t", "all", "-o", "[%a]", "-j", &job]).ok()
    };
    let plain = cluster.submit(&["-H", "--wrap", "true"]);
    let charged = cluster.submit(&["-H", "-A", "atlas", "--wrap", "true"]);
    assert_ne!(account(plain), "[atlas]\n");
    assert_eq!(account(charged), "[atlas]\n");
    let said = cluster.sluice(&["project", "add", "atlas", "no-such-user"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let note = "sluice: note: user \"no-such-user\" is not known on this machine\n";
    assert_eq!(said.stderr, note);
}

#[test]
fn up_logs_take_tasks_of_arrays_and_say_which_one_they_show() {
    let cluster = Cluster::up(TWO_NODES);
    let array = cluster.submit(&["-a", "1-11", "--wrap", "echo task-$SLURM_ARRAY_TASK_ID"]);
    (1..=11).for_each(|task| drop(cluster.await_end(format!("{array}_{task}"))));
    let listed = cluster.sluice(&["ps", "-a"]).ok();
    let is_task = |word: &&str| word.starts_with(&format!("{array}_"));
    let tasks: Vec<&str> = listed.split_whitespace().filter(is_task).collect();
    let in_order: Vec<String> = (1..=11).map(|task| format!("{array}_{task}")).collect();
    assert_eq!(tasks, in_order, "{listed}");
    for task in [1, 2] {
        let said = cluster.sluice(&["logs", &format!("{array}_{task}")]);
        assert_eq!((said.stdout, said.stderr), (format!("task-{task}\n"), String::new()));
    }
    let said = cluster.sluice(&["logs", &array.to_string()]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let note = format!("sluice: note: this is the log of task {array}_");
    assert!(said.stderr.starts_with(&note), "{}", said.stderr);
}

#[test]
fn up_stop_ends_the_task_or_the_step_that_was_typed() {
    let cluster = Cluster::up(TWO_NODES);
    let array = cluster.submit(&["-a", "1-2", "--wrap", "sleep 1000"]);
    let task = |index: u32| format!("{array}_{index}");
    [1, 2].into_iter().for_each(|index| cluster.await_state(task(index), "RUNNING"));
    cluster.sluice(&["stop", "-y", &task(1)]).ok();
    cluster.await_end(task(1));
    cluster.await_state(task(2), "RUNNING");
    cluster.sluice(&["stop", "-y", &array.to_string()]).ok();
    cluster.await_end(task(2));

    let body = "srun sh -c 'touch begun; sleep 1000'; touch over; sleep 1000";
    let job = cluster.submit(&["--wrap", body]);
    cluster.await_file("begun", |_| true);
    cluster.sluice(&["stop", "-y", &format!("{job}.0")]).ok();
    cluster.await_file("over", |_| true);
    cluster.await_state(job, "RUNNING");
}

#[test]
fn up_logs_of_all_tasks_are_printed_and_followed_with_where_they_are_from() {
    let cluster = Cluster::up(TWO_NODES);
    let body = "echo begins-$SLURM_ARRAY_TASK_ID; until [ -e go ]; do sleep 0.05; done; echo ends; printf last";
    let array = cluster.submit(&["-a", "1-3%2", "--wrap", body]);
    for task in [1, 2] {
        cluster.await_state(format!("{array}_{task}"), "RUNNING");
    }
    let name = array.to_string();
    let follow = cluster.spawn(&["logs", "-f", "--all", &name]);
    until("what is there is printed", || {
        let said = cluster.sluice(&["logs", "--all", &name]).stdout;
        (said == format!("{array}_1 | begins-1\n{array}_2 | begins-2\n")).then_some(())
    });
    cluster.write("go", "");
    let output = follow.wait_with_output().expect("it ends");
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    // The third starts while the others are followed; each is whole and in its order.
    for task in [1, 2, 3] {
        let prefix = format!("{array}_{task} | ");
        let own: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix(&prefix)).collect();
        assert_eq!(own, [format!("begins-{task}").as_str(), "ends", "last"], "{said}");
    }
    assert_eq!(said.lines().count(), 9, "{said}");
    let json = cluster.sluice(&["logs", "--all", "--json", &name]).ok();
    let first: serde_json::Value = serde_json::from_str(json.lines().next().unwrap_or_default())
        .expect("an object on each line");
    assert_eq!(first["message"], "begins-1");
}

#[test]
fn up_reconfigure_says_what_brings_a_new_node_into_service() {
    let cluster = Cluster::up(TWO_NODES);
    let conf = TWO_NODES.replace("node[1-2]", "node[1-3]");
    cluster.write_conf("slurm.conf", &conf);
    let said = cluster.sluice(&["scontrol", "reconfigure"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let note = "scontrol: note: no agent serves node3 yet: `sluice token node node3`";
    assert!(said.stderr.starts_with(note), "{}", said.stderr);
    cluster.sluice(&["down"]).ok();
    cluster.start();
    until("all nodes serve", || {
        let idle = cluster.sluice(&["sinfo", "-h", "-p", "gpu", "-t", "idle", "-o", "%D"]).stdout;
        (idle.trim() == "3").then_some(())
    });
    let said = cluster.sluice(&["scontrol", "reconfigure"]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
}

#[test]
fn up_smallest_configuration_lets_two_jobs_share_a_node_that_ask_for_memory() {
    let conf = "ClusterName=small\nSlurmdParameters=config_overrides\n\
                NodeName=n1 CPUs=2 RealMemory=1000\nPartitionName=main Nodes=n1 Default=YES\n";
    let cluster = Cluster::up(conf);
    let one = cluster.submit(&["--mem=100", "-o", "/dev/null", "--wrap", "sleep 600"]);
    let other = cluster.submit(&["--mem=100", "-o", "/dev/null", "--wrap", "sleep 600"]);
    cluster.await_state(one, "RUNNING");
    cluster.await_state(other, "RUNNING");
}

/// Under `sluice up` there is no unit of systemd: what `doctor` names has to work there.
#[test]
fn up_doctor_names_a_remedy_that_brings_back_the_agent_of_up() {
    let cluster = Cluster::up(TWO_NODES);
    let remedy = || {
        let said = cluster.sluice(&["doctor", "--json"]).stdout;
        let found: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        let problems = found["problems"].as_array().expect("problems").clone();
        problems.first().map(|one| one["remedy"].as_str().expect("a text").to_owned())
    };
    assert_eq!(remedy(), None);
    cluster.kill("agent");
    let named = until("a node that does not answer is found", remedy);
    assert_eq!(named, "sluice up --detach");
    cluster.sluice(&["up", "--detach"]).ok();
    until("nothing is wrong", || remedy().is_none().then_some(()));
    cluster.sluice(&["down"]).ok();
    let said = cluster.sluice(&["doctor"]);
    assert!(said.code == 1 && said.stdout.contains("remedy:     sluice up --detach"), "{said:?}");
}

#[test]
fn up_token_for_a_node_that_is_connected_says_what_it_would_do() {
    let cluster = Cluster::up(TWO_NODES);
    let said = cluster.sluice(&["token", "node", "node[1-2]"]);
    let note = "sluice: note: node[1-2] have an agent that is connected: ";
    assert!(said.code == 0 && said.stderr.starts_with(note), "{said:?}");
    assert!(serde_json::from_str::<serde_json::Value>(&said.stdout).is_ok(), "{said:?}");
    cluster.kill("agent");
    until("nobody is there", || {
        let said = cluster.sluice(&["token", "node", "node1"]);
        (said.code == 0 && said.stderr.is_empty()).then_some(())
    });
}
