//! What `sluice sim` simulates, and the options that have a meaning for it.

use super::{MachineNodes, SimArgs};
use crate::command::verb::VerbError;

/// What is simulated, but for faults, which have options of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Trace,
    Pods,
    Synthetic,
    Live,
}

impl Mode {
    fn words(self) -> &'static str {
        match self {
            Self::Trace => "a trace",
            Self::Pods => "a list of pods, with --nodes FILE",
            Self::Synthetic => "--synthetic",
            Self::Live => "--live",
        }
    }
}

/// An option by its name, whether it is given, and what it is for. The argument TRACE and the options that say what is simulated are
/// not among them.
type Row = (&'static str, fn(&SimArgs) -> bool, &'static [Mode]);

const OPTIONS: &[Row] = &[
    ("jobs", |args| args.jobs.is_some(), &[Mode::Synthetic]),
    ("load", |args| args.load.is_some(), &[Mode::Synthetic]),
    ("add-nodes", |args| !args.add_nodes.is_empty(), &[Mode::Live]),
    ("without", |args| !args.without.is_empty(), &[Mode::Live]),
    ("server", |args| args.server.server.is_some(), &[Mode::Live]),
    ("state", |args| args.server.state.is_some(), &[Mode::Live]),
    ("policy", |args| args.policy.is_some(), &[Mode::Trace, Mode::Synthetic]),
    ("nodes", |args| args.nodes.is_some(), &[Mode::Trace, Mode::Pods, Mode::Synthetic]),
    ("arrive", |args| args.arrive.is_some(), &[Mode::Pods]),
    ("seed", |args| args.seed.is_some(), &[Mode::Pods, Mode::Synthetic]),
    ("config", |args| args.config.is_some(), &[Mode::Trace, Mode::Synthetic, Mode::Live]),
    ("queue", |args| !args.queue.is_empty(), &[Mode::Trace]),
    ("partition", |args| !args.partition.is_empty(), &[Mode::Trace]),
    ("estimates", |args| args.estimates, &[Mode::Trace, Mode::Synthetic]),
    ("kinds", |args| args.kinds, &[Mode::Trace, Mode::Synthetic]),
    ("charts", |args| args.charts.is_some(), &[Mode::Trace, Mode::Synthetic]),
    ("json", |args| args.json, &[Mode::Trace, Mode::Pods, Mode::Synthetic, Mode::Live]),
];

pub fn of(args: &SimArgs) -> Mode {
    match (&args.trace, &args.nodes) {
        _ if args.synthetic.is_some() => Mode::Synthetic,
        (Some(_), Some(MachineNodes::List(_))) => Mode::Pods,
        (Some(_), _) => Mode::Trace,
        (None, _) => Mode::Live,
    }
}

/// Refuses the first option that has no meaning here.
pub fn check(args: &SimArgs, mode: Mode) -> Result<(), VerbError> {
    let is_idle = |(_, is_given, modes): &&Row| is_given(args) && !modes.contains(&mode);
    let Some((name, _, modes)) = OPTIONS.iter().find(is_idle) else {
        let names_partitions = !args.queue.is_empty() || !args.partition.is_empty();
        if names_partitions && args.config.is_none() {
            let fault = "--queue and --partition have no meaning without --config, which has the partitions";
            return Err(VerbError::Message(fault.to_owned()));
        }
        return Ok(());
    };
    let meant: Vec<&str> = modes.iter().map(|mode| mode.words()).collect();
    let here = mode.words().split(',').next().unwrap_or_default();
    let fault = format!("--{name} has no meaning for {here}: it is for {}", meant.join(" or "));
    Err(VerbError::Message(fault))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, Command, FromArgMatches};

    fn command() -> Command {
        SimArgs::augment_args(Command::new("sim"))
    }

    fn said(words: &str) -> String {
        let words = std::iter::once("sim").chain(words.split_whitespace());
        let line = command().try_get_matches_from(words);
        let line = line.unwrap_or_else(|error| panic!("{error}"));
        let args = SimArgs::from_arg_matches(&line).expect("the options of a line");
        match check(&args, of(&args)) {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn options_without_a_meaning_for_what_is_simulated_are_refused_in_one_line() {
        let table = [
            ("t.swf --without n1", "--without has no meaning for a trace: it is for --live"),
            ("t.swf --add-nodes 3:zz", "--add-nodes has no meaning for a trace: it is for --live"),
            ("t.swf --load 5", "--load has no meaning for a trace: it is for --synthetic"),
            ("t.swf --jobs 3", "--jobs has no meaning for a trace: it is for --synthetic"),
            ("t.swf --server http://x", "--server has no meaning for a trace: it is for --live"),
            (
                "t.swf --nodes 4 --seed 1",
                "--seed has no meaning for a trace: it is for a list of pods, with --nodes FILE or --synthetic",
            ),
            (
                "--live --policy easy",
                "--policy has no meaning for --live: it is for a trace or --synthetic",
            ),
            (
                "p.csv --nodes n.csv --kinds",
                "--kinds has no meaning for a list of pods: it is for a trace or --synthetic",
            ),
            (
                "--synthetic lublin --config x --queue 1=a",
                "--queue has no meaning for --synthetic: it is for a trace",
            ),
            (
                "t.swf --nodes 4 --partition 1=a",
                "--queue and --partition have no meaning without --config, which has the partitions",
            ),
            ("p.csv --nodes n.csv --arrive 50 --seed 3 --json", ""),
            ("t.swf --config x --policy easy --partition 1=a --charts f", ""),
            ("--synthetic lublin --jobs 3 --load 5 --nodes 8 --seed 2", ""),
            ("--live --add-nodes 3:a --without b --config x --server y", ""),
        ];
        for (words, expected) in table {
            assert_eq!(said(words), expected, "{words}");
        }
    }

    #[test]
    fn every_option_is_for_something() {
        let command = command();
        let named = |name: &str| OPTIONS.iter().any(|(known, ..)| *known == name);
        for option in command.get_arguments().filter_map(|argument| argument.get_long()) {
            let says_what = ["synthetic", "live", "help"].contains(&option);
            assert!(named(option) || says_what, "--{option}");
        }
    }
}
