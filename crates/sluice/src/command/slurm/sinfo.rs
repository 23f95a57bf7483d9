//! `sinfo`: the partitions and their nodes.

use super::query::{self, CommandError, Server, unknown_names};
use ::slurm::openapi;
use ::slurm::option::{Command, OptionError, OptionKey as K, Parsed, value};
use ::slurm::output::scontrol::reservation::NO_RESERVATIONS;
use ::slurm::output::sinfo::{self, Options};
use ::slurm::words::node;
use model::hostlist;
use std::io;
use std::process::ExitCode;
use std::time::Duration;
use wire::client::{Answer, Call};

const REQUEST: &str = "slurm_load_partitions";

pub fn run(args: &[String]) -> ExitCode {
    query::finish(Command::Sinfo, list(args))
}

fn list(args: &[String]) -> Result<ExitCode, CommandError> {
    let Some(parsed) = query::options(Command::Sinfo, args)? else { return Ok(ExitCode::SUCCESS) };
    let options = output_options(&parsed)?;
    let every = match parsed.text(K::Iterate) {
        Some(text) => {
            let seconds = value::number_from(1, text, "--iterate")?;
            Some(Duration::from_secs(u64::from(seconds)))
        }
        None => None,
    };
    if parsed.has(K::Yaml) {
        return Err(CommandError::message("sinfo: error: --yaml is not supported; --json is"));
    }
    if parsed.has(K::Reservations) {
        return reservations(!options.no_header);
    }
    let tz = timezone::local();
    let mut server = Server::find(REQUEST)?;
    let mut is_first = true;
    loop {
        let answer = server.ask(Call::Cluster)?;
        let Answer::Cluster(cluster) = answer else {
            return Err(CommandError::unexpected(&answer));
        };
        cluster.notices.iter().for_each(|notice| eprintln!("sinfo: note: {notice}"));
        let moment = query::moment(cluster.now, &tz);
        let mut out = io::stdout().lock();
        if parsed.has(K::Json) {
            openapi::nodes(&mut out, &cluster)?;
            return Ok(ExitCode::SUCCESS);
        }
        if is_first {
            let unknown = unknown_names::places(&cluster, &options.partitions, &options.nodes);
            unknown_names::note(Command::Sinfo, unknown);
        }
        is_first = false;
        if every.is_some() && !options.long {
            query::print(&format!("{}\n", moment.date_line()))?;
        }
        for warning in sinfo::render(&mut out, &options, &cluster, moment)? {
            eprintln!("sinfo: error: {warning}");
        }
        let Some(every) = every else { return Ok(ExitCode::SUCCESS) };
        query::print("\n")?;
        std::thread::sleep(every);
    }
}

/// `-T`: prints the reservations.
fn reservations(header: bool) -> Result<ExitCode, CommandError> {
    let all = super::scontrol::reservation::load()?;
    let tz = timezone::local();
    let mut text = String::new();
    if all.reservations.is_empty() {
        text.push_str(NO_RESERVATIONS);
    } else {
        let moment = query::moment(all.now, &tz);
        sinfo::reservations::push(&mut text, &all.reservations, moment, header);
    }
    query::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn output_options(parsed: &Parsed) -> Result<Options, CommandError> {
    let format = parsed.values.iter().rev().find(|s| matches!(s.key, K::Format | K::LongFormat));
    let of = |key| format.filter(|s| s.key == key).map(|s| s.text().to_owned());
    let states = node::parse_filters(parsed.text(K::States).unwrap_or("all")).map_err(|error| {
        let valid = node::BadState::valid_states();
        CommandError::message(format!("sinfo: error: {error}\nsinfo: error: {valid}"))
    })?;
    let nodes = match parsed.text(K::Nodelist) {
        Some(text) => {
            hostlist::expand(text).map_err(|error| OptionError::Value(vec![error.to_string()]))?
        }
        None => Vec::new(),
    };
    Ok(Options {
        format: of(K::Format),
        long_format: of(K::LongFormat),
        sort: parsed.text(K::Sort).map(str::to_owned),
        no_header: parsed.has(K::Noheader),
        long: parsed.has(K::Long),
        node_centric: parsed.has(K::NodeCentric),
        summarize: parsed.has(K::Summarize),
        reasons: parsed.has(K::ListReasons),
        dead: parsed.has(K::Dead),
        responding: parsed.has(K::Responding),
        exact: parsed.has(K::ExactMatch),
        all: parsed.has(K::All),
        states,
        nodes,
        partitions: value::list(parsed.text(K::Partition).unwrap_or_default()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::slurm::option::parse::parse;

    fn options(args: &[&str]) -> Result<Options, CommandError> {
        output_options(&parse(Command::Sinfo, args).expect("a right line"))
    }

    #[test]
    fn sinfo_filters_and_flags_are_parsed() {
        let all = options(&["-Nel", "-t", "idle,down", "-n", "n[1-3]", "-p", "gpu,cpu", "-h"]);
        let all = all.expect("right");
        assert!(all.node_centric && all.exact && all.long && all.no_header && !all.dead);
        assert_eq!(all.states.len(), 2);
        assert_eq!(all.nodes, ["n1", "n2", "n3"]);
        assert_eq!(all.partitions, ["gpu", "cpu"]);
        assert!(options(&["-t", "all"]).expect("right").states.is_empty());
    }

    #[test]
    fn a_bad_state_is_refused_with_the_valid_ones() {
        let text = options(&["-t", "bogus"]).expect_err("wrong").to_string();
        let (first, second) = text.split_once('\n').expect("two lines");
        assert_eq!(first, "sinfo: error: Bad state string: \"bogus\"");
        assert!(second.starts_with("sinfo: error: valid states: unknown,down,idle"), "{second}");
    }
}
