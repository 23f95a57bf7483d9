//! `PrivateData` and `DisableRootJobs` through the commands: what a second user, and root, get.

use crate::harness::{Cluster, TWO_NODES, program};

const OWNER: &str = "man";
const OTHER: &str = "games";
const OPERATOR: &str = "mail";

#[test]
fn root_private_data_hides_the_jobs_and_the_cluster_from_a_second_user() {
    let hidden =
        "FirstJobId=4711\nPrivateData=jobs,nodes,partitions,reservations,usage,users,accounts\n";
    let cluster = Cluster::up(&format!("{hidden}{TWO_NODES}"));
    for line in [
        "add account lab".to_owned(),
        format!("add user {OWNER},{OTHER} account=lab"),
        format!("add user {OPERATOR} account=lab adminlevel=operator"),
    ] {
        cluster.shell(&format!("sacctmgr -i {line}")).ok();
    }
    let job = cluster.submit_as(OWNER, "-J hush -o /dev/null --wrap 'sleep 600'");
    cluster.await_state(job, "RUNNING");

    // Each line shows the word to an operator, and not to another user.
    let lines = [
        ("squeue".to_owned(), "hush"),
        ("squeue --json".to_owned(), "hush"),
        ("sacct -a -n -o JobName".to_owned(), "hush"),
        (format!("scontrol show job {job}"), "hush"),
        ("sshare -a -n -o User".to_owned(), OWNER),
        ("sacctmgr -n show user".to_owned(), OWNER),
        ("sacctmgr -n show association format=user".to_owned(), OWNER),
    ];
    for (line, word) in &lines {
        let said = cluster.shell_as(OTHER, line);
        assert!(!said.stdout.contains(word), "{line}: {}", said.stdout);
        let said = cluster.shell_as(OPERATOR, line);
        assert!(said.stdout.contains(word), "{line}: {said:?}");
    }
    for line in ["sinfo -N -h", "scontrol show node", "scontrol show partition"] {
        let said = cluster.shell_as(OTHER, line);
        assert!(!said.stdout.contains("gpu"), "{line}: {}", said.stdout);
        assert!(cluster.shell_as(OPERATOR, line).ok().contains("gpu"), "{line}");
    }

    // Reports, JSON and our own verbs tell no more: neither the job nor a node.
    let verbs = ["ps -a", "ps -a --json", "top --once", "event", "fleet"];
    let verbs = verbs.map(|verb| format!("{} {verb}", program()));
    let reports = [
        "sacct -a --json",
        "sinfo --json",
        "sinfo -N -l",
        "sinfo -R",
        "squeue --start",
        "squeue -s",
        "sprio -l",
        "sreport user top",
        "sreport cluster AccountUtilizationByUser",
        "sacctmgr show transactions",
        "sacctmgr show event",
        "scontrol show step",
        "scontrol show assoc_mgr",
        "scontrol show topology",
        "strigger --get",
    ];
    for line in verbs.into_iter().chain(reports.map(str::to_owned)) {
        let said = cluster.shell_as(OTHER, &line);
        let told = ["hush", "node1"].iter().any(|word| said.stdout.contains(word));
        assert!(!told, "{line}: {}", said.stdout);
    }

    // By its id, which stands in no other text, it is as if there were no such job.
    for line in [
        format!("squeue -j {job}"),
        format!("scontrol show job {job}"),
        format!("scontrol hold {job}"),
        format!("scontrol update job={job} comment=x"),
        format!("srun --jobid={job} --overlap true"),
        format!("scontrol write batch_script {job} -"),
    ] {
        let none = line.replace(&job.to_string(), "99999");
        let (hidden, none) = (cluster.shell_as(OTHER, &line), cluster.shell_as(OTHER, &none));
        assert_eq!(hidden.code, none.code, "{line}");
        let said = hidden.stderr.replace(&job.to_string(), "99999");
        assert_eq!(said, none.stderr, "{line}");
    }
    // A dependency on it counts as one on a job that does not exist, and a refusal tells nothing of nodes and partitions.
    for kind in ["afterany", "afterok", "afternotok"] {
        let after = format!("--dependency={kind}:{job} -o /dev/null --wrap true");
        let after = cluster.submit_as(OTHER, &after);
        assert!(cluster.await_end(after).starts_with("COMPLETED"), "{kind}");
    }
    for asked in ["-c 9999", "--mem=9999G", "-N 999", "-t 9999-0"] {
        let said = cluster.shell_as(OTHER, &format!("sbatch {asked} --wrap true"));
        let told = ["gpu", "node1", "of memory", "asked"].iter().any(|t| said.stderr.contains(t));
        assert!(!told, "{asked}: {}", said.stderr);
    }
    // When a job would start is told, and not where.
    let test = "sbatch --test-only -n 1 --wrap true";
    let said = cluster.shell_as(OTHER, test);
    let told = said.stderr.contains(" using 1 processors in partition gpu\n");
    assert!(said.code == 0 && told, "{said:?}");
    let said = cluster.shell_as(OPERATOR, test);
    assert!(said.stderr.contains(" using 1 processors on nodes node"), "{said:?}");
    cluster.shell_as(OTHER, &format!("scancel {job}"));
    cluster.shell_as(OTHER, "scancel -u man");
    cluster.await_state(job, "RUNNING");
    assert!(cluster.shell_as(OWNER, "squeue -h -o %j").ok().contains("hush"), "his own");
}

#[test]
fn root_jobs_of_root_are_refused_where_they_are_disabled() {
    let disabled = format!("DisableRootJobs=YES\n{TWO_NODES}");
    let cluster = Cluster::up(&disabled);
    for (line, failed) in [
        ("sbatch --wrap true", "Batch job submission failed"),
        ("srun true", "Unable to allocate resources"),
        ("salloc true", "Job submit/allocate failed"),
    ] {
        let said = cluster.shell(line);
        let command = line.split(' ').next().unwrap();
        let error = format!("{command}: error: {failed}: Invalid user id\n");
        let note = format!("{command}: note: partition gpu takes no jobs of root\n");
        assert_eq!((said.code, said.stderr), (1, format!("{error}{note}")), "{line}");
    }
    assert_eq!(cluster.shell("squeue -h -t all").ok(), "");
    let job = cluster.submit_as(OWNER, "-o /dev/null --wrap true");
    assert!(cluster.await_end(job).starts_with("COMPLETED"), "others run");
}
