//! Resource usage of jobs and steps: `sstat` while they run, `sacct` afterwards.

use crate::harness::Cluster;

const CONF: &str = "\
ClusterName=test
SlurmdParameters=config_overrides
DefMemPerCPU=200
KillWait=1
NodeName=node[1-2] CPUs=8 RealMemory=4000
PartitionName=main Nodes=node[1-2] Default=YES State=UP
";

/// Allocates some megabytes, uses some CPU, then waits for the file `go`.
const HOLD: &str = "python3 -c 'import os,time,sys; m=int(sys.argv[1]); b=bytearray(m<<20); \
    t=time.process_time(); \
    exec(\"while time.process_time()-t < 0.4: pass\"); \
    open(\"began\",\"a\").write(\"x\"); \
    exec(\"while not os.path.exists(\\\"go\\\"): time.sleep(0.05)\")' ";

fn kib(text: &str) -> u64 {
    let (number, unit) = text.split_at(text.len() - 1);
    // Multiples of half a megabyte are written so: 172.50M.
    let number: f64 = number.parse().unwrap_or_else(|_| panic!("an amount: {text}"));
    let factor = match unit {
        "K" => 1.0,
        "M" => 1024.0,
        "G" => 1024.0 * 1024.0,
        other => panic!("a unit: {other}"),
    };
    (number * factor) as u64
}

fn fields(line: &str) -> Vec<&str> {
    line.trim_end().split('|').collect()
}

#[test]
fn up_sstat_shows_each_task_of_a_running_step_and_sacct_records_them() {
    let cluster = Cluster::up(CONF);
    let script = "#!/bin/bash\nsrun -N2 -n2 --ntasks-per-node=1 bash -c '\
         dd if=/dev/zero of=/dev/null bs=1M count=$((8 * (1 + SLURM_PROCID))) 2> /dev/null; \
         exec bash hold.sh $((20 + 60 * SLURM_PROCID))'\n";
    cluster.write("hold.sh", &format!("{HOLD} $1\n"));
    cluster.write("job.sh", script);
    let job = cluster.submit(&["-N2", "-n2", "-o", "out", "job.sh"]);
    cluster.await_file("began", |text| text.len() == 2);
    let asked = "JobID,NTasks,MaxRSS,MaxRSSNode,MaxRSSTask,AveRSS,MinCPU,MaxDiskReadTask";
    let line = ["sstat", "-n", "-P", "-j", &job.to_string(), "-o", asked];
    let text = cluster.sluice(&line).ok();
    let row = fields(&text);
    assert_eq!((row[0], row[1]), (format!("{job}.0").as_str(), "2"), "{text}");
    assert_eq!((row[3], row[4], row[7]), ("node2", "1", "1"), "{text}");
    assert!((80 << 10..200 << 10).contains(&kib(row[2])), "{text}");
    assert!(kib(row[5]) < kib(row[2]) && kib(row[5]) > 40 << 10, "{text}");
    // All steps, and the batch step.
    let all = cluster.sluice(&["sstat", "-n", "-P", "-a", "-j", &job.to_string(), "-o", "JobID"]);
    assert_eq!(all.ok(), format!("{job}.batch\n{job}.0\n"));
    let pids = cluster.sluice(&["sstat", "-n", "-P", "-i", "-j", &format!("{job}.0")]).ok();
    let row = fields(&pids);
    assert_eq!(row[1], "node[1-2]", "{pids}");
    assert!(
        row[2].split(',').all(|pid| crate::harness::is_alive(pid.parse().expect("a pid"))),
        "{pids}"
    );
    let listed = cluster.sluice(&["scontrol", "listpids", &format!("{job}.0"), "node2"]).ok();
    let mut lines = listed.lines();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        words(lines.next().unwrap_or("")),
        ["PID", "JOBID", "STEPID", "LOCALID", "GLOBALID"]
    );
    let first = words(lines.next().unwrap_or(""));
    assert!(row[2].split(',').any(|pid| pid == first[0]), "{listed}");
    assert_eq!(first[1..3], [job.to_string(), "0".to_owned()], "{listed}");

    cluster.write("go", "");
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    let asked = "JobID,MaxRSS,MaxRSSNode,MaxRSSTask,AveRSS,MaxDiskRead,MaxDiskReadNode,AveDiskRead,\
                 TotalCPU,TRESUsageInMax";
    let said = cluster.sluice(&["sacct", "-n", "-P", "-j", &format!("{job}.0"), "-o", asked]).ok();
    let row = fields(&said);
    assert!(kib(row[1]) >= 80 << 10, "{said}");
    assert_eq!((row[2], row[3], row[6]), ("node2", "1", "node2"), "{said}");
    let megabytes = |text: &str| text.trim_end_matches('M').parse::<f64>().expect("megabytes");
    assert!(megabytes(row[5]) >= 16.0 && megabytes(row[7]) >= 12.0, "{said}");
    assert!(row[8] >= "00:00.800", "two tasks burnt 0.4 s each: {said}");
    assert!(row[9].starts_with("cpu=00:00:0") && row[9].contains(",pages="), "{said}");
    let of = |id: &str| {
        let line = ["sacct", "-n", "-P", "-j", &job.to_string(), "-o", "JobID,TotalCPU"];
        let said = cluster.sluice(&line).ok();
        let row = said.lines().find_map(|line| line.strip_prefix(&format!("{id}|")));
        row.unwrap_or_else(|| panic!("{id}: {said}")).to_owned()
    };
    let (whole, script) = (of(&job.to_string()), of(&format!("{job}.batch")));
    assert!(whole.as_str() >= "00:00.800", "the job's is that of all: {whole}");
    assert!(script < whole, "and its script's its own: {script}");
}

#[test]
fn up_usage_of_a_script_and_its_children_is_the_batch_steps() {
    let cluster = Cluster::up(CONF);
    cluster.write("hold.sh", &format!("{HOLD} 50\n"));
    cluster.write("job.sh", "#!/bin/bash\nbash hold.sh\ncat /etc/passwd > /dev/null\n");
    let job = cluster.submit(&["-o", "out", "job.sh"]);
    cluster.await_file("began", |text| !text.is_empty());
    let step = format!("{job}.batch");
    let line = ["sstat", "-n", "-P", "-j", &step, "-o", "JobID,MaxRSS,MaxRSSNode,NTasks,Pids"];
    let said = cluster.sluice(&line).ok();
    let row = fields(&said);
    assert_eq!((row[0], row[2], row[3]), (step.as_str(), "node1", "1"), "{said}");
    assert!(kib(row[1]) >= 50 << 10, "{said}");
    assert!(row[4].split(',').count() >= 3, "the script, a shell and python: {said}");
    cluster.write("go", "");
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    let line = ["sacct", "-n", "-P", "-j", &step, "-o", "MaxRSS,AveCPU,MaxPages,ConsumedEnergy"];
    let said = cluster.sluice(&line).ok();
    let row = fields(&said);
    assert!(kib(row[0]) >= 50 << 10 && row[3] == "0", "{said}");
}

#[test]
fn up_samples_find_a_memory_peak_over_all_processes() {
    let cluster = Cluster::up(CONF);
    cluster.write("hold.sh", &format!("{HOLD} 40\n"));
    // Only the samples, one a second, can have seen the three processes together.
    cluster.write(
        "job.sh",
        "#!/bin/bash\nfor i in 1 2 3; do bash hold.sh & done\n\
         until [ \"$(cat began)\" = xxx ]; do sleep 0.05; done 2> /dev/null; sleep 5; touch go; wait\n",
    );
    let job = cluster.submit(&["--mem=1000", "--acctg-freq=task=1", "-o", "out", "job.sh"]);
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    let step = format!("{job}.batch");
    let said = cluster.sluice(&["sacct", "-n", "-P", "-j", &step, "-o", "MaxRSS"]).ok();
    assert!(kib(said.trim()) >= 120 << 10, "{said}");
}

#[test]
fn up_bad_sstat_arguments_are_refused_in_slurms_words() {
    let cluster = Cluster::up(CONF);
    let job = cluster.submit(&["-o", "out", "--wrap", "until [ -e go ]; do sleep 0.05; done"]);
    cluster.await_state(job, "RUNNING");
    let table = [
        (vec!["sstat"], "sstat: error: You didn't give me any jobs to stat.\n".to_owned()),
        (vec!["sstat", "-j", "x"], "sstat: fatal: Bad job/step specified: x\n".to_owned()),
    ];
    for (args, words) in table {
        let said = cluster.sluice(&args);
        assert_eq!((said.code, said.stderr), (1, words), "{args:?}");
    }
    let said = cluster.sluice(&["sstat", "-n", "-j", "9999"]);
    let words = "sstat: error: couldn't get steps for job 9999\n";
    assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (0, "", words));
    let said = cluster.sluice(&["sstat", "-j", &format!("{job}.batch"), "-o", "NoSuch"]);
    assert!(said.code == 1 && said.stderr.contains("Invalid field requested: \"NoSuch\""));
    let help = cluster.sluice(&["sstat", "-e"]).ok();
    assert!(help.contains("MaxRSSTask") && help.contains("TRESUsageOutTot"));
}

#[test]
fn root_up_sstat_of_another_users_job_is_refused() {
    let cluster = Cluster::up(CONF);
    let submit = "sbatch --parsable -o out --wrap 'until [ -e go ]; do sleep 0.05; done'";
    let job = cluster.shell_as("daemon", submit).ok().trim().to_owned();
    cluster.await_state(&job, "RUNNING");
    let line = format!("sstat -n -P -j {job}.batch -o JobID");
    assert_eq!(cluster.shell_as("daemon", &line).ok().trim(), format!("{job}.batch"));
    let said = cluster.shell_as("games", &line);
    assert_eq!(said.code, 1, "{}", said.stdout);
    assert!(said.stderr.contains("Access/permission denied"), "{}", said.stderr);
}

#[test]
fn up_seff_shows_what_a_job_used_of_what_it_was_given() {
    let cluster = Cluster::up(CONF);
    let job = cluster.submit(&["-c", "2", "--mem=100M", "-o", "/dev/null", "--wrap", "exit 3"]);
    cluster.await_end(job);
    let said = cluster.shell(&format!("seff {job}")).ok();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], format!("Job ID: {job}"), "{said}");
    assert!(lines.contains(&"State: FAILED (exit code 3)"), "{said}");
    assert!(lines.contains(&"Cores: 2"), "{said}");
    assert!(said.contains("CPU Efficiency: ") && said.contains(" core-walltime\n"), "{said}");
    assert!(said.contains("% of 100.00 MB\n"), "{said}");
    let unknown = cluster.shell("seff 99");
    assert_eq!((unknown.code, &*unknown.stderr), (1, "seff: error: job 99 does not exist\n"));
    let bad = cluster.shell("seff x");
    assert_eq!(bad.stderr, "seff: error: \"x\" names no job: expected 12 or 12_3\n");
}
