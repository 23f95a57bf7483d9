//! Whole command lines that Slurm 22.05 refuses, with its words and exit codes.

use super::*;

/// Refusals of `sbatch … --wrap true`, run by a user who is not root: arguments, standard error, exit code.
#[rustfmt::skip]
const REFUSED: &[(&str, &str, i32)] = &[
    ("--array=a-b", "error: Batch job submission failed: Invalid job array specification", 1),
    ("--acctg-freq=xx", "error: Invalid --acctg-freq specification: xx", 255),
    ("--core-spec=x", "error: Invalid numeric value \"x\" for --core-spec.", 1),
    ("--cores-per-socket=x", "error: Invalid numeric value \"x\" for --cores-per-socket.", 1),
    ("--cpu-freq=foo", "error: unrecognized --cpu-freq argument \"foo\"\nsbatch: error: Invalid --cpu-freq argument", 255),
    ("--cpus-per-gpu=x", "error: Invalid numeric value \"x\" for --cpus-per-gpu.", 1),
    ("--cpus-per-task=0", "error: Invalid numeric value \"0\" for --cpus-per-task.", 1),
    ("--delay-boot=x", "error: Invalid --delay-boot specification", 255),
    ("--dependency=bogus:1", "error: Batch job submission failed: Job dependency problem", 1),
    ("--dependency=afterok:abc", "error: Batch job submission failed: Job dependency problem", 1),
    ("--distribution=foo", "error: Invalid --distribution specification", 255),
    ("--exclusive=topo", "error: --exclusive=topo is not supported: jobs would share the blocks and switches that are to be theirs alone", 255),
    ("--exclusive=foo", "error: Invalid --exclusive specification", 255),
    ("--extra-node-info=x", "error: Invalid numeric value \"x\" for first arg of -B.", 1),
    ("--get-user-env=x", "error: Invalid --get-user-env specification", 255),
    ("--gpu-bind=foo", "error: Invalid --gpu-bind argument: gpu:foo", 255),
    ("--gpu-freq=foo", "error: Invalid --gpu-freq argument: gpu:foo", 255),
    ("--gres=gpu:x:y:z", "error: Invalid generic resource (gres) specification", 1),
    ("--gres-flags=foo", "error: Invalid --gres-flags specification", 255),
    ("--gres-flags=enforce-binding,foo", "error: Invalid --gres-flags specification", 255),
    ("--gres-flags=one-task-per-sharing", "error: --gres-flags=one-task-per-sharing is not supported: tasks may get shares of the same GPU", 255),
    ("--hint=foo", "error: unrecognized --hint argument \"foo\", see --hint=help", 1),
    ("--kill-on-invalid-dep=foo", "error: Invalid --kill-on-invalid-dep specification", 255),
    ("--mail-type=foo", "error: Invalid --mail-type specification", 255),
    ("--mem=abc", "error: Invalid --mem specification", 255),
    ("--mem=-1", "error: Invalid --mem specification", 255),
    ("--mem=1.5G", "error: Invalid --mem specification", 255),
    ("--mem=4X", "error: Invalid --mem specification", 255),
    ("--mem-bind=foo", "error: unrecognized --mem-bind argument \"foo\"", 255),
    ("--mem-per-cpu=x", "error: Invalid --mem-per-cpu specification", 255),
    ("--mem-per-gpu=x", "error: Invalid --mem-per-gpu specification", 255),
    ("--mem=1 --mem-per-cpu=1", "fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.", 1),
    ("--mincpus=0", "error: Invalid numeric value \"0\" for --mincpus.", 1),
    ("--nice=99999999999", "error: Invalid --nice value, out of range (+/- 2147483645)", 255),
    ("--nice=2147483646", "error: Invalid --nice value, out of range (+/- 2147483645)", 255),
    ("--oom-kill-step=2", "error: Invalid --oom-kill-step specification", 255),
    ("--no-kill=foo", "error: Invalid --no-kill specification", 255),
    ("--nodefile=/nofile", "error: slurm_allocate_resources error opening file /nofile, No such file or directory\nsbatch: error: Invalid --nodefile node file", 255),
    ("--nodes=foo", "error: \"foo\" is not a valid node count", 255),
    ("--nodes=4-2", "error: Maximum node count 2 is less than minimum node count 4", 255),
    ("--nodes=2-x", "error: \"x\" is not a valid node count", 255),
    ("-n 0", "error: Invalid numeric value \"0\" for --ntasks.", 1),
    ("-n abc", "error: Invalid numeric value \"abc\" for --ntasks.", 1),
    ("--ntasks=-1", "error: Invalid numeric value \"-1\" for --ntasks.", 1),
    ("--ntasks=0x10", "error: Invalid numeric value \"0x10\" for --ntasks.", 1),
    ("--ntasks-per-core=x", "error: Invalid numeric value \"x\" for --ntasks-per-core.", 1),
    ("--ntasks-per-gpu=x", "error: Invalid numeric value \"x\" for --ntasks-per-gpu.", 1),
    ("--ntasks-per-node=-1", "error: Invalid numeric value \"-1\" for --ntasks-per-node.", 1),
    ("--ntasks-per-socket=x", "error: Invalid numeric value \"x\" for --ntasks-per-socket.", 1),
    ("--ntasks-per-gpu=2 --gpus-per-task=1", "fatal: --gpus-per-task is mutually exclusive with --ntasks-per-gpu and SLURM_NTASKS_PER_GPU", 1),
    ("--open-mode=foo", "error: Invalid --open-mode specification", 255),
    ("--priority=-1", "error: Priority must be >= 0", 255),
    ("--priority=99999999999", "error: Priority must be < 4294967294", 255),
    ("--profile=foo", "error: invalid --profile=foo option", 255),
    ("--propagate=foo", "error: Bad rlimit name: foo\nsbatch: error: --propagate=foo is not valid.", 1),
    ("--quiet --verbose", "error: don't specify both --verbose (-v) and --quiet (-Q)", 1),
    ("--signal=FOO@10", "error: Invalid --signal specification", 255),
    ("--sockets-per-node=x", "error: Invalid numeric value \"x\" for --sockets-per-node.", 1),
    ("--switches=x", "error: Invalid numeric value \"x\" for --switches.", 1),
    ("--thread-spec=x", "error: Invalid numeric value \"x\" for --thread-spec.", 1),
    ("--threads-per-core=x", "error: Invalid numeric value \"x\" for --threads-per-core.", 1),
    ("--time=foo", "error: Invalid --time specification", 255),
    ("--time=1:2:3:4", "error: Invalid --time specification", 255),
    ("--time=", "error: Invalid --time specification", 255),
    ("--time-min=foo", "error: Invalid --time-min specification", 255),
    ("--tmp=x", "error: Invalid --tmp specification", 255),
    ("--uid=bob", "error: --uid only permitted by root user", 255),
    ("--wait-all-nodes=2", "error: Invalid --wait-all-nodes specification", 255),
    ("--wait-all-nodes=x", "error: Invalid numeric value \"x\" for --wait-all-nodes.", 1),
    ("-m arbitrary", "error: With Arbitrary distribution you need to specify a nodelist or hostfile with the -w option", 1),
];

#[test]
fn values_are_refused_with_slurms_words_and_codes() {
    for (args, words, code) in REFUSED {
        let mut line: Vec<&str> = args.split(' ').collect();
        line.extend(["--wrap", "true"]);
        let error = try_batch(false, &[], &line).expect_err(args);
        assert_eq!(error.render(Command::Sbatch), format!("sbatch: {words}\n"), "{args}");
        assert_eq!(error.exit_code(Command::Sbatch), *code, "{args}");
    }
}

#[test]
fn an_unreadable_time_is_refused_in_two_lines() {
    for (option, name) in [("--begin=foo", "begin"), ("--deadline=foo", "deadline")] {
        let error = try_batch(true, &[], &[option, "--wrap", "true"]).expect_err(option);
        let expected = format!(
            "Invalid time specification (pos=0): foo\nsbatch: error: Invalid --{name} specification\n"
        );
        assert_eq!(error.render(Command::Sbatch), expected);
        assert_eq!(error.exit_code(Command::Sbatch), 255);
    }
}

#[test]
fn root_may_run_as_others_that_exist() {
    assert_eq!(options(&[], &["--uid=bob", "--gid=users", "--wrap", "x"]).uid, Some(1002));
    let error = try_batch(true, &[], &["--uid=nosuch", "--wrap", "x"]).expect_err("no such user");
    assert_eq!(error.render(Command::Sbatch), "sbatch: error: Invalid --uid specification\n");
}

/// The same for `srun` and `salloc`.
#[rustfmt::skip]
const LAUNCHES_REFUSED: &[(Command, &[&str], &str, i32)] = &[
    (Command::Srun, &["--wait=x", "true"], "srun: error: Invalid numeric value \"x\" for --wait.\n", 1),
    (Command::Srun, &["--relative=-1", "true"], "srun: error: Invalid numeric value \"-1\" for --relative.\n", 1),
    (Command::Srun, &["-Kx", "true"], "srun: error: Invalid numeric value \"x\" for --kill-on-bad-exit.\n", 1),
    (Command::Srun, &["-I5x", "true"], "srun: error: Invalid numeric value \"5x\" for immediate.\n", 1),
    (Command::Srun, &["-k5", "true"], "srun: error: Invalid --no-kill specification\n", 255),
    (Command::Srun, &["--threads=0", "true"], "srun: error: Invalid numeric value \"0\" for --threads.\n", 1),
    (Command::Srun, &["--jobid=1_2", "true"], "srun: error: Invalid numeric value \"1_2\" for --jobid.\n", 1),
    (Command::Srun, &["--send-libs=foo", "true"], "srun: error: Invalid --send-libs specification\n", 255),
    (Command::Srun, &["--accel-bind=x", "true"], "srun: error: Invalid --accel-bind specification\n", 255),
    (Command::Srun, &["--msg-timeout=x", "true"], "srun: error: Invalid numeric value \"x\" for --msg-timeout.\n", 1),
    (Command::Srun, &["--resv-ports=x", "true"], "srun: error: Invalid numeric value \"x\" for --resv-port.\n", 1),
    (Command::Srun, &["--signal=B:USR1", "true"], "srun: error: Invalid --signal specification\n", 255),
    (Command::Srun, &["--dependency=x", "true"], "srun: error: Unable to allocate resources: Job dependency problem\n", 1),
    (Command::Srun, &[], "srun: fatal: No command given to execute.\n", 1),
    (Command::Salloc, &["--kill-command=FOO"], "salloc: error: Invalid --kill-command specification\n", 255),
    (Command::Salloc, &["--time=foo"], "salloc: error: Invalid --time specification\n", 255),
];

#[test]
fn srun_and_salloc_refuse_in_their_own_names() {
    for (command, args, words, code) in LAUNCHES_REFUSED {
        let error =
            with_caller(false, &[], |caller| launch(*command, args, caller)).expect_err(words);
        assert_eq!(error.render(*command), *words);
        assert_eq!(error.exit_code(*command), *code, "{args:?}");
    }
}

#[test]
fn counts_of_gpus_that_cannot_be_read_are_named_with_what_can() {
    for (option, note) in [
        ("--gpus=h100:two", "invalid gpu count \"h100:two\": expected COUNT, TYPE or TYPE:COUNT"),
        ("--gres=gpu:foo:bar", "invalid gres \"gpu:foo:bar\": expected NAME, NAME:COUNT"),
    ] {
        let error = try_batch(true, &[], &[option, "--wrap", "x"]).expect_err(option);
        let said = error.note().expect("a note");
        assert!(said.starts_with(note), "{said}");
    }
}

#[test]
fn a_value_from_script_or_environment_is_refused_with_its_place() {
    let error = try_batch(true, &[("SBATCH_TIMELIMIT", "foo")], &["--wrap", "x"]).expect_err("bad");
    assert_eq!(
        error.render(Command::Sbatch),
        "sbatch: error: Invalid --time specification\n\
         sbatch: error: (SBATCH_TIMELIMIT in the environment)\n"
    );
    assert_eq!(error.exit_code(Command::Sbatch), 255);
    let error = try_batch(true, &[], &["badline.sh"]).expect_err("bad");
    assert_eq!(
        error.render(Command::Sbatch),
        "sbatch: error: Invalid numeric value \"x\" for --ntasks.\n\
         sbatch: error: (line 3 of the batch script)\n"
    );
    assert_eq!(error.exit_code(Command::Sbatch), 1);
}
