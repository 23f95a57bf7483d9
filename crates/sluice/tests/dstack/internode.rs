//! `ssh` from one node of a run to another: by the run's own key, into the run's job, with no `sshd` anywhere.

use crate::harness::{Cluster, program, skip, until};
use std::process::Command;

const CONF: &str = "\
ClusterName=internode
KillWait=1
DefMemPerCPU=64
NodeName=node[1-3] CPUs=2 RealMemory=2000
PartitionName=main Nodes=ALL Default=YES State=UP
";

/// A task whose first node runs these commands, while the others wait for the file `done`.
fn task(name: &str, nodes: u32, commands: &[&str]) -> String {
    let first = commands.join("\n      ");
    format!(
        "type: task\nname: {name}\nnodes: {nodes}\nstartup_order: workers-first\nstop_criteria: master-done\n\
         resources: {{cpu: 1.., memory: 64MB.., disk: 0GB..}}\n\
         commands:\n  - |\n    if [ $DSTACK_NODE_RANK = 0 ]; then\n      {first}\n    else\n      sleep 600\n    fi\n"
    )
}

fn apply(cluster: &Cluster, text: &str) {
    cluster.write("run.dstack.yml", text);
    cluster.sluice(&["apply", "-f", "run.dstack.yml", "-y", "-d"]).ok();
}

fn await_verdict(cluster: &Cluster, run: &str) -> String {
    until(&format!("{run} has ended"), || {
        let all = cluster.sluice(&["ps", "-a", "-n", "20"]).ok();
        let line = all.lines().find(|line| line.contains(run))?.to_owned();
        ["exited", "failed", "terminated", "error"]
            .iter()
            .any(|end| line.contains(end))
            .then_some(line)
    })
}

fn has_client() -> bool {
    let there = Command::new("ssh").arg("-V").output().is_ok();
    if !there {
        skip("ssh-client", "no ssh");
    }
    there
}

#[test]
fn up_ssh_between_the_nodes_of_a_run_lands_in_its_job_with_input_output_and_exit_code() {
    if !has_client() {
        return;
    }
    let cluster = Cluster::up(CONF);
    let said = "echo on $SLURMD_NODENAME rank $DSTACK_NODE_RANK of job $SLURM_JOB_ID as $(id -un); cat; exit 7";
    apply(
        &cluster,
        &task(
            "talk",
            3,
            &[
                &format!("echo in | ssh node3 '{said}' > said 2> errors; echo $? > code"),
                // The login that a client names says nothing: the key opens this run, and the host is its node.
                "ssh root@node2 'echo $SLURMD_NODENAME' > other",
                "echo copied > here; scp -q here node2:$PWD/there; ssh -q nowhere.invalid true; echo $? > unknown",
                "ls -l $(dirname $DSTACK_MPI_HOSTFILE) > files",
                "ssh node2 'ssh node3 echo \\$SLURMD_NODENAME' > onward",
            ],
        ),
    );
    let verdict = await_verdict(&cluster, "talk");
    let logs = cluster.sluice(&["logs", "talk"]).stdout;
    assert!(verdict.contains("exited (0)"), "{verdict}\n{logs}");
    let me = crate::harness::user_name();
    let wanted = format!("on node3 rank 2 of job 1 as {me}\nin\n");
    assert_eq!(cluster.read("said"), wanted, "{}", cluster.read("errors"));
    assert_eq!(cluster.read("code"), "7\n");
    assert_eq!(cluster.read("other"), "node2\n");
    assert_eq!(cluster.read("there"), "copied\n");
    assert_eq!(cluster.read("unknown"), "255\n", "another host is ssh's own matter");
    assert_eq!(cluster.read("onward"), "node3\n");
    let files = cluster.read("files");
    let key = files.lines().find(|line| line.ends_with("id_ed25519")).expect("a key");
    assert!(key.starts_with("-rw-------"), "{key}");
    let books = cluster.sluice(&["sacct", "-nP", "-j", "1", "-o", "JobID,JobName"]).ok();
    assert!(books.contains("|ssh"), "the sessions are steps of the job: {books}");
}

#[test]
fn up_key_of_a_run_opens_that_run_alone_and_only_while_it_runs() {
    if !has_client() {
        return;
    }
    let cluster = Cluster::up(CONF);
    let other = cluster.submit_sleeper("-n1");
    cluster.await_state(other, "RUNNING");
    let relay = |login: &str| format!("{} ssh-relay {login}", program());
    let attempt = |login: &str, file: &str| {
        format!(
            "ssh -o BatchMode=yes -o 'ProxyCommand={}' node2 true 2> {file}.said; echo $? > {file}",
            relay(login)
        )
    };
    let line = task(
        "keyed",
        2,
        &[
            "cp $(dirname $DSTACK_MPI_HOSTFILE)/id_ed25519 key",
            &attempt("2.1", "own"),
            &attempt(&other.to_string(), "foreign"),
            &attempt("2.9", "beyond"),
            &attempt("../../x", "odd"),
            "touch ready; while [ ! -e go ]; do sleep 0.1; done",
        ],
    );
    apply(&cluster, &line);
    cluster.await_file("ready", |_| true);
    assert_eq!(cluster.read("own"), "0\n", "{}", cluster.read("own.said"));
    for refused in ["foreign", "odd"] {
        assert_eq!(cluster.read(refused), "255\n");
        let said = cluster.read(&format!("{refused}.said"));
        assert!(said.contains("Permission denied"), "{refused}: {said}");
    }
    assert_ne!(cluster.read("beyond"), "0\n");
    // A copy of the key, by the endpoint's own port.
    let ports = std::fs::read_to_string(cluster.state().join("ports.json")).unwrap();
    let ports: serde_json::Value = serde_json::from_str(&ports).unwrap();
    let port = ports["ssh"].as_str().and_then(|a| a.rsplit(':').next()).expect("an endpoint");
    let come = |login: &str| {
        cluster.shell(&format!(
            "ssh -F none -i key -p {port} -o IdentitiesOnly=yes -o StrictHostKeyChecking=no -o BatchMode=yes \
             -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR {login}@127.0.0.1 true"
        ))
    };
    assert_eq!(come("2").code, 0);
    assert_eq!(come(&other.to_string()).code, 255);
    cluster.write("go", "");
    assert!(await_verdict(&cluster, "keyed").contains("exited (0)"));
    let over = come("2");
    assert!(over.code == 255 && over.stderr.contains("Permission denied"), "{over:?}");
    let left = cluster.shell(&format!(
        "find {} -ignore_readdir_race -path '*run-files/*'",
        cluster.state().display()
    ));
    assert_eq!(left.stdout, "", "the key is gone with the run");
}

/// Groups of different resources are jobs of their own: one key opens both.
#[test]
fn up_ssh_goes_from_one_group_of_a_run_to_another() {
    if !has_client() {
        return;
    }
    let cluster = Cluster::up(CONF);
    let group = |cpus: &str, command: &str| {
        format!(
            "  - resources: {{cpu: {cpus}, memory: 64MB.., disk: 0GB..}}\n    commands: ['{command}']\n"
        )
    };
    let said = r#"ssh ${{ groups[1].nodes[0].IP_ADDRESS }} "echo rank \$DSTACK_NODE_RANK" > said"#;
    let (head, workers) = (group("1", said), group("2", "sleep 600"));
    apply(
        &cluster,
        &format!(
            "type: task\nname: mixed\nstartup_order: workers-first\nstop_criteria: master-done\ngroups:\n{head}{workers}"
        ),
    );
    let verdict = await_verdict(&cluster, "mixed");
    let logs = cluster.sluice(&["logs", "mixed"]).stdout;
    assert!(verdict.contains("exited (0)"), "{verdict}\n{logs}");
    assert_eq!(cluster.read("said"), "rank 1\n");
    let books = cluster.sluice(&["sacct", "-nP", "-j", "1", "-o", "JobID,JobName"]).ok();
    let is_session = |line: &str| line.starts_with("1+1.") && line.ends_with("|ssh");
    assert!(books.lines().any(is_session), "{books}");
}

#[test]
fn root_ssh_between_nodes_is_held_to_the_jobs_groups_and_ends_with_it() {
    if !has_client() {
        return;
    }
    let cluster = Cluster::up(CONF);
    apply(
        &cluster,
        &task(
            "held",
            2,
            &[
                "ssh node2 'cat /proc/self/cgroup; echo $$' > group",
                "ssh node2 'echo $$ > pid; exec sleep 600' &",
                "while [ ! -s pid ]; do sleep 0.1; done",
            ],
        ),
    );
    assert!(await_verdict(&cluster, "held").contains("exited (0)"));
    let group = cluster.read("group");
    assert!(group.contains("job_1") || group.contains("/1."), "{group}");
    let pid: i32 = cluster.read("pid").trim().parse().unwrap();
    until("the session is gone with its job", || (!crate::harness::is_alive(pid)).then_some(()));
}

/// An image of busybox and OpenSSH's client alone.
const IMAGE: &str = "set -e; mkdir -p image/bin image/etc image/tmp image/usr/bin; cp $(command -v busybox) image/bin/; \
    for n in sh cat echo sleep dirname ls; do ln -s busybox image/bin/$n; done; cp $(command -v ssh) image/usr/bin/; \
    for l in $(ldd $(command -v ssh) | grep -o '/[^ ]*'); do mkdir -p image$(dirname $l); cp $l image$l; done; \
    echo root:x:0:0:root:/root:/bin/sh > image/etc/passwd; echo root:x:0: > image/etc/group";

#[test]
fn root_ssh_between_nodes_lands_in_the_container_of_the_run() {
    let has = |program: &str| Command::new(program).arg("--help").output().is_ok();
    if !has_client() {
        return;
    }
    if !has("runc") || !has("busybox") {
        return skip("runc", "no runc or no busybox");
    }
    let cluster = Cluster::up(CONF);
    cluster.shell(IMAGE).ok();
    let image = cluster.path("work").join("image").display().to_string();
    let text = task("boxed", 2, &["ssh node2 'ls /bin; echo rank $DSTACK_NODE_RANK'"]);
    apply(&cluster, &text.replace("nodes: 2", &format!("nodes: 2\nimage: {image}")));
    let verdict = await_verdict(&cluster, "boxed");
    let logs = cluster.sluice(&["logs", "boxed"]).stdout;
    assert!(verdict.contains("exited (0)"), "{verdict}\n{logs}");
    assert_eq!(logs, "busybox\ncat\ndirname\necho\nls\nsh\nsleep\nrank 1\n");
}
