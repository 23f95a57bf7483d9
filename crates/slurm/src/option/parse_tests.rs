//! Command lines as people write them, and what `getopt_long` makes of them.

use super::*;
use OptionKey as K;

fn values(command: Command, args: &[&str]) -> Vec<(K, Option<String>)> {
    let parsed = parse(command, args).unwrap_or_else(|error| panic!("{args:?}: {error}"));
    parsed.values.into_iter().map(|setting| (setting.key, setting.value)).collect()
}

fn value(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn h_of_sshare_leaves_the_header_out() {
    assert_eq!(values(Command::Sshare, &["-h", "-n"]), [(K::Noheader, None), (K::Noheader, None)]);
    let parsed = parse(Command::Sshare, &["--help"]).expect("a question");
    assert_eq!(parsed.question(), Some(Question::Help));
}

#[test]
fn all_spellings_of_an_option_mean_the_same() {
    for args in [
        &["-n4"][..],
        &["-n", "4"],
        &["--ntasks=4"],
        &["--ntasks", "4"],
        // An exact name wins over the longer ones it begins.
        &["-Hn4"],
        &["-Hn", "4"],
    ] {
        let found = values(Command::Sbatch, args);
        assert_eq!(found.last(), Some(&(K::Ntasks, value("4"))), "{args:?}");
    }
}

#[test]
fn a_unique_beginning_of_a_name_is_enough() {
    let cases = [
        (Command::Sbatch, "--exclusiv", K::Exclusive),
        (Command::Sbatch, "--parsa", K::Parsable),
        (Command::Sbatch, "--req", K::Requeue),
        // Two spellings of one option do not contradict each other.
        (Command::Squeue, "--clu=x", K::Clusters),
        (Command::Squeue, "--account=x", K::Account),
        (Command::Squeue, "--nodel=x", K::Nodelist),
        (Command::Scancel, "--jobn=x", K::Name),
    ];
    for (command, arg, key) in cases {
        assert_eq!(values(command, &[arg])[0].0, key, "{} {arg}", command.name());
    }
}

#[test]
fn optional_arguments_are_attached_or_absent() {
    assert_eq!(values(Command::Srun, &["-I", "true"]), [(K::Immediate, None)]);
    assert_eq!(values(Command::Srun, &["-I5", "true"]), [(K::Immediate, value("5"))]);
    assert_eq!(values(Command::Srun, &["--nice", "true"]), [(K::Nice, None)]);
    assert_eq!(values(Command::Srun, &["--nice=7", "true"]), [(K::Nice, value("7"))]);
}

#[test]
fn squeue_takes_job_ids_from_the_next_word_too() {
    for args in [&["-j", "5,6"][..], &["-j5,6"], &["--jobs=5,6"], &["--jobs", "5,6"]] {
        assert_eq!(values(Command::Squeue, args), [(K::Jobs, value("5,6"))], "{args:?}");
    }
    assert_eq!(values(Command::Squeue, &["-s", "-h"]), [(K::Steps, None), (K::Noheader, None)]);
}

#[test]
fn submission_options_end_at_the_users_command_and_others_mix() {
    let rest = |command, args: &[&str]| parse(command, args).expect("a right line").rest;
    assert_eq!(
        rest(Command::Sbatch, &["-n2", "job.sh", "-n9", "--bogus"]),
        ["job.sh", "-n9", "--bogus"]
    );
    assert_eq!(rest(Command::Srun, &["--", "-x"]), ["-x"]);
    assert_eq!(rest(Command::Srun, &["-", "-x"]), ["-", "-x"]);
    let parsed = parse(Command::Scontrol, &["show", "job", "-d", "7", "--", "-o"]).expect("right");
    assert_eq!(parsed.rest, ["show", "job", "7", "-o"]);
    assert!(parsed.has(K::Details));
    assert!(!parsed.has(K::Oneliner));
}

#[test]
fn the_last_value_counts_and_flags_add_up() {
    let parsed = parse(Command::Sbatch, &["-p", "a", "-vv", "--partition=b", "-v"]).expect("right");
    assert_eq!(parsed.text(K::Partition), Some("b"));
    assert_eq!(parsed.count(K::Verbose), 3);
}

#[test]
fn help_and_version_end_the_parsing() {
    for (args, question) in [
        (&["-V", "--bogus"][..], Question::Version),
        (&["-n", "x", "-V"], Question::Version),
        (&["--hel"], Question::Help),
        (&["-hx"], Question::Help),
        (&["--usage"], Question::Usage),
    ] {
        let parsed = parse(Command::Sbatch, args).expect("a question");
        assert_eq!(parsed.question(), Some(question), "{args:?}");
    }
    assert!(parse(Command::Sbatch, &["--bogus", "-V"]).is_err());
    assert_eq!(parse(Command::Squeue, &["-h"]).expect("right").question(), None);
}

/// Each as the commands of Slurm 22.05 answer it.
#[test]
fn misuse_is_refused_in_the_words_of_slurm() {
    let cases: &[(Command, &[&str], &str, i32)] = &[
        (Command::Sbatch, &["--bogus=1"], "sbatch: unrecognized option '--bogus=1'", 255),
        (Command::Sbatch, &["--time"], "sbatch: option '--time' requires an argument", 255),
        (Command::Sbatch, &["-zz"], "sbatch: invalid option -- 'z'", 255),
        (Command::Sbatch, &["-sfoo"], "sbatch: invalid option -- 'f'", 255),
        (
            Command::Sbatch,
            &["--oversubscribe=x"],
            "sbatch: option '--oversubscribe' doesn't allow an argument",
            255,
        ),
        (
            Command::Sbatch,
            &["--tim=1"],
            "sbatch: option '--tim=1' is ambiguous; possibilities: '--time' '--time-min'",
            255,
        ),
        (
            Command::Sbatch,
            &["--no"],
            "sbatch: option '--no' is ambiguous; possibilities: '--no-container-entrypoint' '--no-container-mount-home' '--no-container-remap-root' '--no-kill' '--no-requeue' '--nodefile' '--nodelist' '--nodes'",
            255,
        ),
        (Command::Sbatch, &["--not"], "sbatch: unrecognized option '--not'", 255),
        (
            Command::Salloc,
            &["--no"],
            "salloc: option '--no' is ambiguous; possibilities: '--no-bell' '--no-container-entrypoint' '--no-container-mount-home' '--no-container-remap-root' '--no-kill' '--no-shell' '--nodefile' '--nodelist' '--nodes'",
            255,
        ),
        (Command::Srun, &["-n"], "srun: option requires an argument -- 'n'", 255),
        (Command::Srun, &["--pty=x"], "srun: option '--pty' doesn't allow an argument", 255),
        (Command::Squeue, &["--bogus"], "squeue: unrecognized option '--bogus'", 1),
        (Command::Squeue, &["--helpstate"], "squeue: unrecognized option '--helpstate'", 1),
        (Command::Squeue, &["-p"], "squeue: option requires an argument -- 'p'", 1),
        (Command::Squeue, &["--start=3"], "squeue: option '--start' doesn't allow an argument", 1),
        (Command::Sinfo, &["-~"], "sinfo: invalid option -- '~'", 1),
        (Command::Scancel, &["--bogus"], "scancel: unrecognized option '--bogus'", 1),
        (Command::Scontrol, &["-u"], "scontrol: option requires an argument -- 'u'", 1),
        (Command::Sacctmgr, &["--bogus"], "sacctmgr: unrecognized option '--bogus'", 1),
    ];
    for (command, args, line, code) in cases {
        let error = parse(*command, args).expect_err("misuse");
        let name = command.name();
        let expected = format!("{line}\nTry \"{name} --help\" for more information\n");
        assert_eq!(error.render(*command), expected);
        assert_eq!(error.exit_code(*command), *code, "{name} {args:?}");
    }
    let quiet = parse(Command::Sacct, &["-j"]).expect_err("misuse");
    assert_eq!(quiet.render(Command::Sacct), "sacct: option requires an argument -- 'j'\n");
}

#[test]
fn squeue_refuses_operands() {
    let error = parse(Command::Squeue, &["nodes"]).expect_err("an operand");
    let text = error.render(Command::Squeue);
    assert!(
        text.starts_with("squeue: error: Unrecognized option: nodes\nUsage: squeue "),
        "{text}"
    );
    assert_eq!(error.exit_code(Command::Squeue), 1);
    assert!(parse(Command::Sinfo, &["nodes"]).is_ok());
}

#[test]
fn a_word_after_the_node_option_of_strigger_is_its_value() {
    let parsed = parse(Command::Strigger, &["--set", "-n", "node1", "--down"]).expect("right");
    assert_eq!(parsed.text(K::Nodelist), Some("node1"));
    assert!(parse(Command::Strigger, &["--set", "-n", "node1", "more"]).is_err());
}

#[test]
fn a_colon_separates_components() {
    let run = parse_components(Command::Srun, &["-n1", "a", "b", ":", "-n2", "c"]).expect("right");
    let rests: Vec<_> = run.iter().map(|component| component.rest.join(" ")).collect();
    assert_eq!(rests, ["a b", "c"]);
    let batch = parse_components(Command::Sbatch, &["-n1", ":", "-n2", "s", ":"]).expect("right");
    assert_eq!(batch.len(), 2);
    assert_eq!(batch[1].rest, ["s", ":"]);
}
