//! Accounts, limits, priorities and fair share, through the real commands.

use crate::harness::{Cluster, CommandOutput, TWO_NODES, until, user_name};

/// Billing weights and priority weights; limits and QOS are enforced.
const ACCOUNTED: &str = "\
AccountingStorageEnforce=associations,limits,qos
PriorityType=priority/multifactor
PriorityWeightFairshare=10000
PriorityWeightJobSize=1000
PriorityWeightPartition=1000
PriorityWeightQOS=10000
PriorityWeightTRES=cpu=100,gres/gpu=1000
PartitionName=bill Nodes=node[1-2] PriorityJobFactor=10 TRESBillingWeights=CPU=1.0,Mem=0.25G,GRES/gpu=2.5 DefaultTime=60
PartitionName=acc Nodes=node[1-2] AllowAccounts=chem
";

/// A cluster with the accounts physics (10) and chem (5), the tests' user in both, and the QOS `t`.
fn accounted() -> Cluster {
    let cluster = Cluster::folder(&format!("{TWO_NODES}{ACCOUNTED}"));
    cluster.start();
    let me = user_name();
    for line in [
        "add account physics fairshare=10",
        "add account chem fairshare=5",
        &format!("add user {me} account=physics"),
        &format!("add user {me} account=chem"),
        "add qos t",
        "add qos high Priority=1000",
        &format!("modify user {me} set qos+=t,high"),
    ] {
        manage(&cluster, line).ok();
    }
    cluster
}

fn manage(cluster: &Cluster, line: &str) -> CommandOutput {
    cluster.shell(&format!("sacctmgr -i {line}"))
}

fn cancel_all(cluster: &Cluster) {
    cluster.shell(&format!("scancel -u {}", user_name())).ok();
    until("nothing is left", || cluster.shell("squeue -h").ok().trim().is_empty().then_some(()));
}

/// Sets a limit, submits the jobs, waits until the last waits for `reason`, lifts the limit, and waits until it runs.
fn holds_and_lets_go(
    cluster: &Cluster,
    of: &str,
    set: &str,
    clear: &str,
    jobs: &[&str],
    reason: &str,
) {
    manage(cluster, &format!("modify {of} set {set}")).ok();
    let ids: Vec<u32> = jobs.iter().map(|args| cluster.submit_sleeper(args)).collect();
    let (last, first) = ids.split_last().expect("a job");
    first.iter().for_each(|id| cluster.await_state(id, "RUNNING"));
    let wanted = format!("PENDING|{reason}");
    until(&format!("{of} {set}: job {last} is {wanted}"), || {
        (cluster.state_of(last) == wanted).then_some(())
    });
    manage(cluster, &format!("modify {of} set {clear}")).ok();
    cluster.await_state(last, "RUNNING");
    cancel_all(cluster);
}

#[test]
fn up_each_qos_limit_holds_a_job_with_its_reason_until_it_is_lifted() {
    let cluster = accounted();
    let table: [(&str, &str, &[&str], &str); 17] = [
        ("GrpTRES=cpu=2", "GrpTRES=cpu=-1", &["-n2", "-n1"], "QOSGrpCpuLimit"),
        ("GrpTRES=mem=24", "GrpTRES=mem=-1", &["-n1", "-n1"], "QOSGrpMemLimit"),
        ("GrpTRES=node=1", "GrpTRES=node=-1", &["-N2"], "QOSGrpNodeLimit"),
        (
            "GrpTRES=gres/gpu=1",
            "GrpTRES=gres/gpu=-1",
            &["--gres=gpu:1", "--gres=gpu:1"],
            "QOSGrpGRES",
        ),
        ("GrpTRES=billing=1", "GrpTRES=billing=-1", &["-n1", "-n1"], "QOSGrpBilling"),
        (
            "GrpTRESRunMins=cpu=100",
            "GrpTRESRunMins=cpu=-1",
            &["-t60", "-t60"],
            "QOSGrpCPURunMinutesLimit",
        ),
        ("GrpJobs=1", "GrpJobs=-1", &["", ""], "QOSGrpJobsLimit"),
        ("GrpWall=0", "GrpWall=-1", &[""], "QOSGrpWallLimit"),
        ("MaxTRESPerJob=cpu=2", "MaxTRESPerJob=cpu=-1", &["-n3"], "QOSMaxCpuPerJobLimit"),
        ("MaxTRESPerNode=cpu=2", "MaxTRESPerNode=cpu=-1", &["-N1 -n4"], "QOSMaxCpuPerNode"),
        (
            "MaxTRESMinsPerJob=cpu=10",
            "MaxTRESMinsPerJob=cpu=-1",
            &["-t60"],
            "QOSMaxCpuMinutesPerJobLimit",
        ),
        ("MaxWall=10", "MaxWall=-1", &["-t60"], "QOSMaxWallDurationPerJobLimit"),
        ("MaxTRESPerUser=cpu=2", "MaxTRESPerUser=cpu=-1", &["-n2", "-n1"], "QOSMaxCpuPerUserLimit"),
        (
            "MaxTRESPerAccount=cpu=2",
            "MaxTRESPerAccount=cpu=-1",
            &["-n2", "-n1"],
            "MaxCpuPerAccount",
        ),
        ("MaxJobsPerUser=1", "MaxJobsPerUser=-1", &["", ""], "QOSMaxJobsPerUserLimit"),
        ("MaxJobsPerAccount=1", "MaxJobsPerAccount=-1", &["", ""], "MaxJobsPerAccount"),
        ("MinTRESPerJob=cpu=4", "MinTRESPerJob=cpu=-1", &["-n1"], "QOSMinCpuNotSatisfied"),
    ];
    for (set, clear, jobs, reason) in table {
        let jobs: Vec<String> = jobs.iter().map(|args| format!("--qos=t {args}")).collect();
        let jobs: Vec<&str> = jobs.iter().map(String::as_str).collect();
        holds_and_lets_go(&cluster, "qos t", set, clear, &jobs, reason);
    }
}

#[test]
fn up_each_association_limit_holds_a_job_with_its_reason_until_it_is_lifted() {
    let cluster = accounted();
    let user = format!("user {} where account=physics", user_name());
    let table: [(&str, &str, &str, &[&str], &str); 10] = [
        (&user, "GrpTRES=cpu=2", "GrpTRES=cpu=-1", &["-n2", "-n1"], "AssocGrpCpuLimit"),
        (
            "account physics",
            "GrpTRES=gres/gpu=1",
            "GrpTRES=gres/gpu=-1",
            &["--gres=gpu:1", "--gres=gpu:1"],
            "AssocGrpGRES",
        ),
        ("account root", "GrpTRES=mem=24", "GrpTRES=mem=-1", &["-n1", "-n1"], "AssocGrpMemLimit"),
        ("account physics", "GrpJobs=1", "GrpJobs=-1", &["", ""], "AssocGrpJobsLimit"),
        ("account physics", "GrpWall=0", "GrpWall=-1", &[""], "AssocGrpWallLimit"),
        (
            "account physics",
            "GrpTRESMins=cpu=0",
            "GrpTRESMins=cpu=-1",
            &[""],
            "AssocGrpCPUMinutesLimit",
        ),
        (
            "account physics",
            "MaxTRESPerJob=cpu=2",
            "MaxTRESPerJob=cpu=-1",
            &["-n3"],
            "AssocMaxCpuPerJobLimit",
        ),
        (&user, "MaxWall=10", "MaxWall=-1", &["-t60"], "AssocMaxWallDurationPerJobLimit"),
        (&user, "MaxJobs=1", "MaxJobs=-1", &["", ""], "AssocMaxJobsLimit"),
        (&user, "MaxJobs=0", "MaxJobs=-1", &[""], "AssocMaxJobsLimit"),
    ];
    for (of, set, clear, jobs, reason) in table {
        holds_and_lets_go(&cluster, of, set, clear, jobs, reason);
    }
}

#[test]
fn up_submits_over_a_limit_are_refused_in_slurms_words_and_leave_no_job() {
    let cluster = accounted();
    let policy = "Batch job submission failed: Job violates accounting/QOS policy \
                  (job submit limit, user's size and/or time limits)";
    let user = format!("user {}", user_name());
    let submits: [(&str, &str, &str); 5] = [
        ("qos t", "GrpSubmitJobs", "QOSGrpSubmitJobsLimit"),
        ("qos t", "MaxSubmitJobsPerUser", "QOSMaxSubmitJobPerUserLimit"),
        ("qos t", "MaxSubmitJobsPerAccount", "MaxSubmitJobsPerAccount"),
        (&user, "MaxSubmitJobs", "AssocMaxSubmitJobLimit"),
        ("account physics", "GrpSubmitJobs", "AssocGrpSubmitJobsLimit"),
    ];
    for (of, key, word) in submits {
        manage(&cluster, &format!("modify {of} set {key}=1")).ok();
        cluster.submit_sleeper("-H --qos=t");
        let said = cluster.shell("sbatch -H --qos=t --wrap true");
        let expected = format!("sbatch: error: {word}\nsbatch: error: {policy}\n");
        assert_eq!((said.code, said.stderr), (1, expected), "{of} {key}");
        manage(&cluster, &format!("modify {of} set {key}=-1")).ok();
        cancel_all(&cluster);
    }
    let alone = [
        ("MaxTRESPerJob=cpu=2", "MaxTRESPerJob=cpu=-1", "-n3", "QOSMaxCpuPerJobLimit"),
        ("GrpTRES=gres/gpu=1", "GrpTRES=gres/gpu=-1", "--gres=gpu:2", "QOSGrpGRES"),
        ("MaxTRESPerUser=cpu=2", "MaxTRESPerUser=cpu=-1", "-n3", "QOSMaxCpuPerUserLimit"),
        ("MaxWall=10", "MaxWall=-1", "-t60", "QOSMaxWallDurationPerJobLimit"),
        ("MinTRESPerJob=cpu=4", "MinTRESPerJob=cpu=-1", "-n1", "QOSMinCpuNotSatisfied"),
    ];
    manage(&cluster, "modify qos t set Flags=DenyOnLimit").ok();
    for (set, clear, args, word) in alone {
        manage(&cluster, &format!("modify qos t set {set}")).ok();
        let said = cluster.shell(&format!("sbatch --qos=t {args} --wrap true"));
        let expected = format!("sbatch: error: {word}\nsbatch: error: {policy}\n");
        assert_eq!((said.code, said.stderr), (1, expected), "{set}");
        manage(&cluster, &format!("modify qos t set {clear}")).ok();
    }
    manage(&cluster, "modify qos t set Flags=RequiresReservation").ok();
    let refused = [
        ("--qos=t", "Invalid qos specification", "QOS that you may use: high"),
        ("--qos=nosuch", "Invalid qos specification", "QOS that you may use: high"),
        (
            "-A nosuch",
            "Invalid account or account/partition combination specified",
            "accounts that you may use: chem",
        ),
    ];
    for (args, sentence, names) in refused {
        let said = cluster.shell(&format!("sbatch {args} --wrap true"));
        let expected = format!("sbatch: error: Batch job submission failed: {sentence}\n");
        assert_eq!(said.code, 1, "{args}");
        assert!(said.stderr.starts_with(&expected), "{args}: {}", said.stderr);
        assert!(said.stderr.contains(&format!("note: {names}, ")), "{args}: {}", said.stderr);
    }
    assert_eq!(
        cluster.shell("squeue -h -t all").ok().lines().filter(|l| l.contains("PD")).count(),
        0
    );
}

#[test]
fn up_a_job_in_a_partition_closed_to_its_account_waits_with_slurms_reason() {
    let cluster = accounted();
    let id = cluster.submit_sleeper("-p acc -A physics");
    let wanted =
        "PENDING|Job's account not permitted to use this partition (acc allows chem not physics)";
    until("the job waits", || (cluster.state_of(id) == wanted).then_some(()));
    // A job that names several partitions uses those that admit its account.
    let id = cluster.submit_sleeper("-p acc,gpu -A physics");
    cluster.await_state(id, "RUNNING");
    assert_eq!(cluster.shell(&format!("squeue -h -j {id} -o %P")).ok().trim(), "gpu");
    let id = cluster.submit_sleeper("-p acc -A chem");
    cluster.await_state(id, "RUNNING");
}

#[test]
fn up_sprio_shows_slurms_numbers_and_the_queue_follows_them() {
    let cluster = accounted();
    // The job that fills the cluster is charged to chem: on a slow machine its use counts before the factors are asked for.
    let hog = cluster.submit_sleeper("-A chem -N2 --exclusive");
    cluster.await_state(hog, "RUNNING");
    let plain = cluster.submit_sleeper("-A physics -n1");
    let gpus = cluster.submit_sleeper("-A physics -n1 --gres=gpu:2 --nice=50");
    let high = cluster.submit_sleeper("-A physics -n1 --qos=high");
    let both = cluster.submit_sleeper("-A physics -p gpu,bill -n1");
    // Nobody has used anything of this account, so its fair share factor is 1. The job size factor of one node of two and one CPU of 64
    // is (1/2 + 1/64)/2 = 0.2578; the factor of partition gpu is 1 of 10.
    let text = cluster.shell("sprio -o '%i %r %Y %F %J %P %Q %N %T'").ok();
    let expected = format!(
        "JOBID PARTITION PRIORITY FAIRSHARE JOBSIZE PARTITION QOS NICE TRES\n\
         {plain} gpu 10359 10000 258 100 0 0 cpu=2\n\
         {gpus} gpu 10434 10000 258 100 0 50 cpu=2,gres/gpu=125\n\
         {high} gpu 20359 10000 258 100 10000 0 cpu=2\n\
         {both} gpu 10359 10000 258 100 0 0 cpu=2\n\
         {both} bill 11259 10000 258 1000 0 0 cpu=2\n"
    );
    assert_eq!(text, expected);
    let order = cluster.shell("sprio -h -S -Y -o %i -p gpu").ok();
    assert_eq!(order.split_whitespace().next(), Some(high.to_string().as_str()));
    let weights = cluster.shell("sprio -h -w").ok();
    assert_eq!(weights.split_whitespace().last(), Some("cpu=100,gres/gpu=100"));
    let none = cluster.shell("sprio -j 99999");
    assert_eq!(
        (none.code, none.stdout.as_str()),
        (0, "Unable to find jobs matching user/id(s) specified\n")
    );
    let said = cluster.shell("sprio -j x");
    assert_eq!((said.code, said.stderr.as_str()), (1, "sprio: error: Invalid job id: x\n"));
    // Only an operator may set the site factor.
    cluster.shell(&format!("scontrol update job={plain} SiteFactor=30")).ok();
    let line = format!("sprio -h -j {plain} -o '%Y %S'");
    assert_eq!(cluster.shell(&line).ok().trim(), "10389 30");
    // The job with the highest priority waits for resources.
    until("the order is by priority", || {
        let reason = |id: u32| cluster.state_of(id);
        (reason(high) == "PENDING|Resources" && reason(plain) == "PENDING|Priority").then_some(())
    });
}

#[test]
fn up_sshare_counts_usage_by_the_partitions_billing_weights() {
    let cluster = accounted();
    let me = user_name();
    // 3 CPUs, 4 GiB at a quarter each, 2 GPUs at 2.5: 3 + 0.75 (of 3 GiB) + 5, cut to 8.
    let id = cluster.submit(&[
        "-p",
        "bill",
        "-A",
        "chem",
        "-n3",
        "--gres=gpu:2",
        "--mem=3G",
        "--wrap",
        "sleep 2",
    ]);
    assert_eq!(cluster.await_end(id), "COMPLETED|0:0");
    let line = format!("sacct -n -X -P -j {id} -o AllocTRES,ElapsedRaw");
    let text = cluster.shell(&line).ok();
    let (tres, elapsed) = text.trim().split_once('|').expect("two fields");
    assert!(tres.starts_with("billing=8,cpu=3,gres/gpu=2,"), "{tres}");
    let elapsed: u64 = elapsed.parse().expect("seconds");
    let shares = cluster.shell("sshare -a -P -o Account,User,RawShares,NormShares,RawUsage").ok();
    let rows: Vec<Vec<&str>> = shares.lines().map(|line| line.split('|').collect()).collect();
    let row = |account: &str, user: &str| {
        let found = rows.iter().find(|row| row[0].trim() == account && row[1] == user);
        found.unwrap_or_else(|| panic!("no row of {account} {user} in\n{shares}")).clone()
    };
    assert_eq!(row("physics", "")[2..4], ["10", "0.666667"]);
    assert_eq!(row("chem", "")[2..4], ["5", "0.333333"]);
    let used: u64 = row("chem", &me)[4].parse().expect("usage");
    // Elapsed is the difference of two times in whole seconds, which may be a second more or less than what usage counts.
    assert!((8 * (elapsed - 1)..8 * (elapsed + 2)).contains(&used), "{used} of {elapsed} s");
    assert_eq!((row("physics", &me)[4], row("root", "")[4]), ("0", row("chem", "")[4]));
    let bad = cluster.shell("sshare -o bogus");
    assert_eq!(
        (bad.code, bad.stderr.as_str()),
        (1, "sshare: error: Invalid field requested: \"bogus\"\n")
    );
    manage(&cluster, "modify account chem set RawUsage=0").ok();
    assert_eq!(cluster.shell("sshare -n -A chem -P -o RawUsage").ok().trim(), "0");
}

#[test]
fn up_bad_accounts_and_limits_change_nothing() {
    let cluster = accounted();
    let before = cluster.shell("sacctmgr -P show assoc; sacctmgr -P show qos").ok();
    let hint =
        |word: &str| format!(" Unknown option: {word}\n Use keyword 'where' to modify condition\n");
    let table = [
        ("add account x parent=nosuch", " Parent account 'nosuch' doesn't exist on cluster test\n        Contact your admin to add this account.\n No associations created.\n".to_string()),
        ("add account x GrpTRES=bogus=1", format!("sacctmgr: error: slurmdb_format_tres_str: no TRES known by type bogus\n{}", hint("GrpTRES=bogus=1"))),
        ("modify account physics set GrpJobs=x", format!("sacctmgr: error: Invalid value for GrpJobs (x)\n{}", hint("GrpJobs=x"))),
        ("modify account physics set Bogus=1", hint("Bogus=1")),
        ("add user someone", " Need name of account to add user to.\n".into()),
        ("add user someone acount=chem", hint("acount=chem")),
        ("add user someone account=nosuch", " This account 'nosuch' doesn't exist.\n        Contact your admin to add this account.\n".into()),
        ("add qos x MaxWall=soon", " Bad MaxWall time format: MaxWall=soon\n".into()),
        ("modify qos t set MaxTRESPerUser=nosuch=1", "sacctmgr: error: slurmdb_format_tres_str: no TRES known by type nosuch\n".into()),
        ("modify qos t set", " You didn't give me anything to set\n".into()),
        ("add qos x Flags=Bogus", String::new()),
    ];
    for (line, stderr) in table {
        let said = manage(&cluster, line);
        let lines = said.stderr.split_inclusive('\n').filter(|line| !line.contains(": note: "));
        assert_eq!((said.code, lines.collect::<String>()), (1, stderr), "{line}");
    }
    let said = manage(&cluster, "add user someone acount=chem").stderr;
    assert!(said.contains("note: what can be set: Account, DefaultAccount, "), "{said}");
    for line in ["modify qos nosuch set Priority=1", "modify user nosuch set fairshare=1"] {
        let said = manage(&cluster, line);
        assert_eq!((said.code, said.stdout.as_str()), (1, " Nothing modified\n"), "{line}");
    }
    assert_eq!(cluster.shell("sacctmgr -P show assoc; sacctmgr -P show qos").ok(), before);
    // An account with a job stays.
    let id = cluster.submit_sleeper("-H -A physics");
    let said = manage(&cluster, "delete account physics");
    assert_eq!(said.code, 1);
    let first = " Error with request: Job(s) active, cancel job(s) before remove\n  JobID = ";
    assert!(said.stderr.starts_with(&format!("{first}{id}")), "{}", said.stderr);
    assert_eq!(cluster.shell("sacctmgr -P show assoc; sacctmgr -P show qos").ok(), before);
    // One that is refused keeps its users.
    cluster.shell(&format!("scancel {id}")).ok();
    manage(&cluster, "add account below parent=physics").ok();
    let before = cluster.shell("sacctmgr -P show assoc").ok();
    let said = manage(&cluster, "delete account physics");
    let below = "sacctmgr: error: account below is below it: remove that one first\n";
    assert_eq!((said.code, said.stderr.as_str()), (1, below));
    let said = manage(&cluster, "delete account root");
    let root = " You are not allowed to remove the root account.\n Use remove cluster instead.\n";
    assert_eq!((said.code, said.stderr.as_str()), (1, root));
    assert_eq!(cluster.shell("sacctmgr -P show assoc").ok(), before);
}

#[test]
fn up_accounts_and_usage_survive_a_kill_of_the_server() {
    let cluster = accounted();
    manage(&cluster, "modify account physics set GrpTRES=cpu=3 MaxJobs=7").ok();
    let id = cluster.submit(&["-A", "chem", "-n2", "--wrap", "sleep 1"]);
    assert_eq!(cluster.await_end(id), "COMPLETED|0:0");
    let ask = "sshare -a -P; sacctmgr -P show assoc; sacctmgr -P show qos";
    let before = cluster.shell(ask).ok();
    cluster.kill("server");
    cluster.start();
    assert_eq!(cluster.shell(ask).ok(), before);
}

#[test]
fn up_assoc_mgr_shows_each_limit_with_what_is_used_of_it() {
    let cluster = accounted();
    manage(&cluster, "modify qos t set MaxTRESPerUser=gres/gpu=4 GrpJobs=9").ok();
    manage(&cluster, "modify account physics set GrpTRES=cpu=30").ok();
    let job = ["-A", "physics", "-q", "t", "-n2", "--gres=gpu:2", "--wrap", "sleep 600"];
    let id = cluster.submit(&job);
    cluster.await_state(id, "RUNNING");
    let qos = cluster.shell("scontrol show assoc_mgr flags=qos qos=t").ok();
    assert!(qos.starts_with("Current Association Manager state\n\nQOS Records\n\nQOS=t("), "{qos}");
    assert!(qos.contains("    GrpJobs=9(1) ") && qos.contains("gres/gpu=4(2)"), "{qos}");
    assert_eq!(qos.matches("QOS=").count(), 1, "{qos}");
    let shown = cluster.shell("scontrol show assoc_mgr flags=assoc accounts=physics").ok();
    let records: Vec<&str> = shown.split("ClusterName=").skip(1).collect();
    assert_eq!(records.len(), 2, "the account and its user: {shown}");
    assert!(records[0].contains("GrpTRES=cpu=30(2),"), "{shown}");
    let wrong = cluster.shell("scontrol show assoc_mgr flags=jobs");
    assert!(wrong.code == 1 && wrong.stderr.contains("expected users, assoc or qos"), "{wrong:?}");
}
