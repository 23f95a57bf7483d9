//! Bad input is refused in Slurm's words, and changes nothing.

use crate::harness::{Cluster, TWO_NODES};

/// A shell line, its exit code, its standard output and its standard error.
type Row = (&'static str, i32, &'static str, &'static str);

/// Options and values that `sbatch` refuses.
const SUBMITS: &[Row] = &[
    (
        "sbatch --bogus",
        255,
        "",
        "sbatch: unrecognized option '--bogus'\nTry \"sbatch --help\" for more information\n",
    ),
    (
        "sbatch -Z --wrap true",
        255,
        "",
        "sbatch: invalid option -- 'Z'\nTry \"sbatch --help\" for more information\n",
    ),
    (
        "sbatch --time",
        255,
        "",
        "sbatch: option '--time' requires an argument\nTry \"sbatch --help\" for more information\n",
    ),
    ("sbatch -t x --wrap true", 255, "", "sbatch: error: Invalid --time specification\n"),
    ("sbatch -t 1:2:3:4 --wrap true", 255, "", "sbatch: error: Invalid --time specification\n"),
    (
        "sbatch --begin=foo --wrap true",
        255,
        "",
        "Invalid time specification (pos=0): foo\nsbatch: error: Invalid --begin specification\n",
    ),
    (
        "sbatch --deadline=foo --wrap true",
        255,
        "",
        "Invalid time specification (pos=0): foo\nsbatch: error: Invalid --deadline specification\n",
    ),
    ("sbatch --mem=abc --wrap true", 255, "", "sbatch: error: Invalid --mem specification\n"),
    ("sbatch --mem=10Q --wrap true", 255, "", "sbatch: error: Invalid --mem specification\n"),
    ("sbatch --mem=-5 --wrap true", 255, "", "sbatch: error: Invalid --mem specification\n"),
    (
        "sbatch -n 0 --wrap true",
        1,
        "",
        "sbatch: error: Invalid numeric value \"0\" for --ntasks.\n",
    ),
    (
        "sbatch -n abc --wrap true",
        1,
        "",
        "sbatch: error: Invalid numeric value \"abc\" for --ntasks.\n",
    ),
    (
        "sbatch -c 0 --wrap true",
        1,
        "",
        "sbatch: error: Invalid numeric value \"0\" for --cpus-per-task.\n",
    ),
    (
        "sbatch --signal=FOO@10 --wrap true",
        255,
        "",
        "sbatch: error: Invalid --signal specification\n",
    ),
    (
        "sbatch --gres=bogus:1 --wrap true",
        1,
        "",
        "sbatch: error: Invalid generic resource (gres) specification\nsbatch: note: no node has the generic resource bogus\n",
    ),
    (
        "sbatch --gres=gpu:x:y:z --wrap true",
        1,
        "",
        "sbatch: error: Invalid generic resource (gres) specification\n\
         sbatch: note: invalid gres \"gpu:x:y:z\": expected NAME, NAME:COUNT, NAME:TYPE or NAME:TYPE:COUNT, as in gpu:h100:2\n",
    ),
    (
        "sbatch --wrap true good.sh",
        1,
        "",
        "sbatch: error: Script arguments not permitted with --wrap option\n",
    ),
    (
        "sbatch -M nosuch --wrap true",
        1,
        "",
        "sbatch: error: No cluster 'nosuch' known by database.\n\
         sbatch: error: 'nosuch' can't be reached now, or it is an invalid entry for --cluster.  \
         Use 'sacctmgr list clusters' to see available clusters.\n",
    ),
];

/// Options of a submit that the server refuses, and what it says.
const REFUSED: &[(&str, &str)] = &[
    ("--reservation=nope", "Requested reservation is invalid"),
    ("-w node9", "Invalid node name specified"),
    ("-C a100", "Invalid feature specification"),
    ("--array=a-b", "Invalid job array specification"),
    ("--array=5-1", "Invalid job array specification"),
    ("--array=", "Invalid job array specification"),
    ("--array=1-99999999", "Invalid job array specification"),
    ("--dependency=bogus:1", "Job dependency problem"),
    ("--dependency=afterok:abc", "Job dependency problem"),
    ("--dependency=afterok:1", "Job dependency problem"),
];

const NO_SCRIPT: &str = "sbatch: error: This does not look like a batch script.  The first\n\
                         sbatch: error: line must start with #! followed by the path to an interpreter.\n\
                         sbatch: error: For instance: #!/bin/sh\n";

/// Files that are no scripts. The bytes come from `printf`.
const SCRIPTS: &[(&str, i32, &str)] = &[
    ("", 1, "sbatch: error: Batch script is empty!\n"),
    (" \\n\\t\\n", 1, "sbatch: error: Batch script contains only whitespace!\n"),
    ("echo hi\\n", 1, NO_SCRIPT),
    ("\\177ELF\\002\\001\\000\\000", 1, NO_SCRIPT),
    (
        "#!/bin/sh\\n\\000\\n",
        1,
        "sbatch: error: The Slurm controller does not allow scripts that\n\
         sbatch: error: contain a NULL character '\\0'.\n",
    ),
    (
        "#!/bin/sh\\r\\ntrue\\r\\n",
        1,
        "sbatch: error: Batch script contains DOS line breaks (\\r\\n)\n\
         sbatch: error: instead of expected UNIX line breaks (\\n).\n",
    ),
    (
        "#!/bin/sh\\n#SBATCH --bogus=1\\n",
        255,
        "sbatch: unrecognized option '--bogus=1'\nTry \"sbatch --help\" for more information\n",
    ),
];

/// Requests that can never fit; a note may follow Slurm's line.
const NEVER: &[(&str, &str)] = &[
    (
        "sbatch --gres=gpu:16 --wrap true",
        "sbatch: error: Batch job submission failed: Requested node configuration is not available\n",
    ),
    (
        "sbatch -G 17 --wrap true",
        "sbatch: error: Batch job submission failed: Requested node configuration is not available\n",
    ),
    (
        "sbatch -c 64 --wrap true",
        "sbatch: error: CPU count per node can not be satisfied\n\
         sbatch: error: Batch job submission failed: Requested node configuration is not available\n",
    ),
    (
        "sbatch --mem=900G --wrap true",
        "sbatch: error: Memory specification can not be satisfied\n\
         sbatch: error: Batch job submission failed: Requested node configuration is not available\n",
    ),
    (
        "srun --gres=gpu:16 true",
        "srun: error: Unable to allocate resources: Requested node configuration is not available\n",
    ),
];

/// The other commands, on a cluster without jobs.
const QUESTIONS: &[Row] = &[
    (
        "squeue --bogus",
        1,
        "",
        "squeue: unrecognized option '--bogus'\nTry \"squeue --help\" for more information\n",
    ),
    ("squeue -j 999999", 1, "", "slurm_load_jobs error: Invalid job id specified\n"),
    ("squeue -h -p nosuch", 0, "", "squeue: note: there is no partition nosuch\n"),
    ("sinfo -O bogus", 0, "\n\n", "sinfo: error: Invalid job format specification: bogus\n"),
    (
        "sinfo -n nosuch",
        0,
        "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n\
         gpu*         up 7-00:00:00      0    n/a \n\
         debug        up      30:00      0    n/a \n",
        "sinfo: note: there is no node nosuch\n",
    ),
    ("sinfo -h -p nosuch", 0, "", "sinfo: note: there is no partition nosuch\n"),
    (
        "sshare -h -u nosuch -A none",
        0,
        "",
        "sshare: note: there is no association of user nosuch that you may see\n\
         sshare: note: there is no association of account none that you may see\n",
    ),
    ("scancel abc", 1, "", "scancel: error: Invalid job id abc\n"),
    ("scancel 999999", 0, "", ""),
    (
        "scancel -t BOGUS",
        1,
        "",
        "Invalid job state specified: BOGUS\nValid job states are PENDING, RUNNING, and SUSPENDED\n",
    ),
    ("sacct -j abc", 1, "", "sacct: fatal: Bad job/step specified: abc\n"),
    ("sacct -o bogus", 1, "", "sacct: error: Invalid field requested: \"bogus\"\n"),
    ("sacct -s BOGUS", 1, "", "sacct: fatal: unrecognized job state value 'BOGUS'\n"),
    ("sacct -n -j 999999", 0, "", ""),
    ("sacct -u nosuch", 1, "", "sacct: error: Invalid user id: nosuch\n"),
    ("scontrol bogus", 1, "", "invalid keyword: bogus\n"),
    ("scontrol show bogus", 1, "", "invalid entity:bogus for keyword:show \n"),
    ("scontrol show job 999999", 1, "", "slurm_load_jobs error: Invalid job id specified\n"),
    ("scontrol show node nosuch", 1, "Node nosuch not found\n", ""),
    ("scontrol show partition nosuch", 1, "Partition nosuch not found\n", ""),
    (
        "scontrol hold 999999",
        1,
        "",
        "Invalid job id specified for job 999999\nslurm_suspend error: Invalid job id specified\n",
    ),
    ("scontrol requeue 999999", 1, "", "Invalid job id specified for job 999999\n"),
    ("scontrol requeuehold 999999", 1, "", "Invalid job id specified for job 999999\n"),
    (
        "scontrol update timelimit=1",
        1,
        "",
        "No valid entity in update command\nInput line must include \"NodeName\", \"PartitionName\", \
         \"Reservation\", \"JobId\", or \"SlurmctldDebug\"\n",
    ),
    (
        "scontrol update nodename=node1 state=drain",
        1,
        "",
        "You must specify a reason when DOWNING or DRAINING a node. Request denied\n",
    ),
    (
        "scontrol update nodename=nosuch state=drain reason=x",
        1,
        "",
        "slurm_update error: Invalid node name specified\n",
    ),
    (
        "scontrol update nodename=node2 state=bogus",
        1,
        "",
        "Invalid input: state=bogus\nRequest aborted\n\
         Valid states are: NoResp DRAIN FAIL FUTURE RESUME POWER_DOWN POWER_UP UNDRAIN\n\
         Not all states are valid given a node's prior state\n",
    ),
    (
        "srun --jobid=999999 true",
        1,
        "",
        "srun: error: Unable to confirm allocation for job 999999: Invalid job id specified\n\
         srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 999999\n",
    ),
    (
        "sacctmgr -i add user alice Account=nosuch",
        1,
        " Nothing new added.\n",
        " This account 'nosuch' doesn't exist.\n        Contact your admin to add this account.\n",
    ),
    ("sacctmgr show qos format=bogus", 1, "", "Unknown field 'bogus'\n"),
];

/// Everything that a change would show in.
fn seen(cluster: &Cluster) -> String {
    let lines = "squeue -h -t all -o %i; sacct -a -n -P -o JobID; sinfo -h -o '%P %a %t %N'; \
                 sacctmgr -n -P show user; sacctmgr -n -P show qos format=name";
    cluster.shell(lines).ok()
}

fn assert_rows(cluster: &Cluster, rows: &[Row]) {
    let before = seen(cluster);
    for (line, code, stdout, stderr) in rows {
        let said = cluster.shell(line);
        let got = (said.code, said.stdout.as_str(), said.stderr.as_str());
        assert_eq!(got, (*code, *stdout, *stderr), "{line}");
        assert_eq!(seen(cluster), before, "{line} changed something");
    }
    assert_eq!(cluster.submit(&["-H", "--wrap", "true"]), 1, "a refused line used up an id");
}

#[test]
fn up_a_bad_submit_is_refused_in_slurms_words_and_uses_no_id() {
    let cluster = Cluster::up(TWO_NODES);
    cluster.write("good.sh", "#!/bin/sh\ntrue\n");
    assert_rows(&cluster, SUBMITS);
}

#[test]
fn up_a_submit_that_the_server_refuses_uses_no_id_and_leaves_no_record() {
    let cluster = Cluster::up(TWO_NODES);
    let before = seen(&cluster);
    for (options, sentence) in REFUSED {
        let said = cluster.shell(&format!("sbatch {options} --wrap true"));
        let words = format!("sbatch: error: Batch job submission failed: {sentence}\n");
        // An unknown node or feature is named in a line after Slurm's own.
        let slurms = said.stderr.split("sbatch: note: ").next().unwrap_or_default();
        assert_eq!((said.code, slurms, said.stdout.as_str()), (1, &*words, ""), "{options}");
        assert_eq!(seen(&cluster), before, "{options} changed something");
    }
    assert_eq!(cluster.submit(&["-H", "--wrap", "true"]), 1, "a refused submit used up an id");
}

#[test]
fn up_bad_queries_are_refused_in_slurms_words() {
    let cluster = Cluster::up(TWO_NODES);
    assert_rows(&cluster, QUESTIONS);
    let said = cluster.shell("sinfo -t bogus");
    assert_eq!(said.code, 1);
    let first =
        "sinfo: error: Bad state string: \"bogus\"\nsinfo: error: valid states: unknown,down,";
    assert!(said.stderr.starts_with(first), "{}", said.stderr);
    let id = cluster.submit(&["-H", "--wrap", "true"]);
    let said = cluster.shell(&format!("scontrol update jobid={id} bogus=1"));
    let words = "Update of this parameter is not supported: bogus=1\nRequest aborted\n";
    assert_eq!((said.code, said.stderr.as_str()), (1, words));
    let said = cluster.shell(&format!("scontrol requeue {id}"));
    let words = format!("Job is pending execution for job {id}\n");
    assert_eq!((said.code, said.stderr), (1, words));
}

#[test]
fn up_a_file_that_is_no_script_is_refused() {
    let cluster = Cluster::up(TWO_NODES);
    let before = seen(&cluster);
    for (bytes, code, stderr) in SCRIPTS {
        for line in ["sbatch < script", "sbatch script"] {
            let said = cluster.shell(&format!("printf '{bytes}' > script; {line}"));
            assert_eq!((said.code, said.stderr.as_str()), (*code, *stderr), "{line} of {bytes:?}");
        }
    }
    let places = [
        ("sbatch nosuch.sh", "sbatch: error: Unable to open file nosuch.sh\n"),
        ("sbatch .", "sbatch: error: Batch script is empty!\n"),
    ];
    for (line, stderr) in places {
        let said = cluster.shell(line);
        assert_eq!((said.code, said.stderr.as_str()), (1, stderr), "{line}");
    }
    let long = wire::client::SCRIPT_BYTES_MAX;
    cluster.write("long.sh", &format!("#!/bin/sh\n{}", "#".repeat(long)));
    let said = cluster.shell("sbatch long.sh");
    let words = format!("sbatch: error: Batch script is larger than {long} bytes\n");
    assert_eq!((said.code, said.stderr), (1, words));
    let said = cluster.shell("printf '#!/bin/sh\\n#SBATCH -t x\\n' | sbatch");
    let words = "sbatch: error: Invalid --time specification\n";
    assert!(said.code == 255 && said.stderr.starts_with(words), "{said:?}");
    assert!(said.stderr.contains("line 2"), "{said:?}");
    assert_eq!(seen(&cluster), before);
    assert_eq!(cluster.submit(&["-H", "--wrap", "true"]), 1, "a refused script used up an id");
}

#[test]
fn up_a_job_that_can_never_fit_is_refused_at_submit() {
    let cluster = Cluster::up(TWO_NODES);
    let before = seen(&cluster);
    for (line, words) in NEVER {
        let said = cluster.shell(line);
        assert_eq!(said.code, 1, "{line}");
        assert!(said.stderr.starts_with(words), "{line}: {}", said.stderr);
        let more = said.stderr.lines().count() - words.lines().count();
        assert!(more <= 1, "{line}: {}", said.stderr);
        assert_eq!(seen(&cluster), before, "{line} changed something");
    }
    assert_eq!(cluster.submit(&["-H", "--wrap", "true"]), 1);
}

#[test]
fn up_account_and_qos_that_do_not_exist_are_taken_with_a_note_where_nothing_is_enforced() {
    let cluster = Cluster::up(TWO_NODES);
    let said = cluster.shell("sbatch -H -A nosuch --qos=none --wrap true");
    let notes = "sbatch: note: there is no account nosuch here: the name is only noted with the job\n\
                 sbatch: note: there is no QOS none here: the job is taken as if it named none\n";
    assert_eq!((said.code, said.stderr.as_str()), (0, notes), "{}", said.stdout);
    cluster.shell("sacctmgr -i add account physics").ok();
    let said = cluster.shell("sbatch -H -A physics --qos=normal --wrap true");
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{}", said.stdout);
    let said = cluster.shell("sbatch -QH -A nosuch --wrap true");
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{}", said.stdout);
}

#[test]
fn up_enforced_associations_require_an_account() {
    let conf = TWO_NODES.to_string() + "AccountingStorageEnforce=associations\n";
    let cluster = Cluster::up(&conf);
    let words = "sbatch: error: Batch job submission failed: \
                 Invalid account or account/partition combination specified\n";
    // Who has no association at all is in `setup/clear_answers.rs`: root needs none.
    let said = cluster.shell("sbatch -A nosuch --wrap true");
    assert_eq!(said.code, 1, "{}", said.stdout);
    assert!(said.stderr.starts_with(words), "{}", said.stderr);
    assert_eq!(cluster.shell("squeue -h -t all").ok(), "");
}
