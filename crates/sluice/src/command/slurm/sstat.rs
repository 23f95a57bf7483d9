//! `sstat`: resource usage of running steps.

use super::query::job_names::{self, NamedJob};
use super::query::{self, CommandError, Server};
use ::slurm::option::{Command, OptionKey as K, Parsed};
use ::slurm::output::sacct::Units;
use ::slurm::output::sstat::{self, Options, Row};
use ::slurm::output::table::field_table::Layout;
use model::id::StepId;
use std::io;
use std::process::ExitCode;
use wire::client::{Answer, Call, JobUsage, StepUsage};

const REQUEST: &str = "sstat: error: slurm_job_step_stat";

pub fn run(args: &[String]) -> ExitCode {
    query::finish(Command::Sstat, list(args))
}

fn list(args: &[String]) -> Result<ExitCode, CommandError> {
    let Some(parsed) = query::options(Command::Sstat, args)? else { return Ok(ExitCode::SUCCESS) };
    if parsed.has(K::HelpFormat) {
        query::print(&sstat::help_format())?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(text) = parsed.joined(K::Jobs).filter(|text| !text.is_empty()) else {
        return Err(CommandError::message("sstat: error: You didn't give me any jobs to stat."));
    };
    let named = job_names::parse_jobs(&text).map_err(|word| {
        CommandError::message(format!("sstat: fatal: Bad job/step specified: {word}"))
    })?;
    let options = output_options(&parsed);
    let columns = sstat::columns(&options)
        .map_err(|error| CommandError::message(format!("sstat: error: {error}")))?;
    let mut server = Server::find(REQUEST)?;
    let jobs = named.iter().map(|one| one.job.clone()).collect();
    let found = match server.ask(Call::Usage { jobs, load: false })? {
        Answer::Usage(found) => found,
        other => return Err(CommandError::unexpected(&other)),
    };
    let (steps, missing) = select_steps(&named, &found, parsed.has(K::AllSteps));
    let row = |(job, step)| Row { job, step, units: options.units };
    let rows: Vec<Row<'_>> = steps.into_iter().map(row).collect();
    sstat::render(&mut io::stdout().lock(), &options, &columns, &rows)?;
    // As in Slurm, a missing step is reported and the exit code is 0.
    missing.iter().for_each(|what| eprintln!("sstat: error: {what}"));
    Ok(ExitCode::SUCCESS)
}

fn output_options(parsed: &Parsed) -> Options {
    let separator = || Layout::SEPARATOR.to_owned();
    let layout = match (parsed.has(K::Parsable2), parsed.has(K::Parsable)) {
        (true, _) => Layout::Separated(separator()),
        (false, true) => Layout::Ended(separator()),
        (false, false) => Layout::Aligned,
    };
    Options {
        format: parsed.text(K::Format).map(str::to_owned),
        pids: parsed.has(K::PidFormat),
        no_header: parsed.has(K::Noheader),
        layout,
        units: if parsed.has(K::Noconvert) { Units::Own } else { Units::Exact },
    }
}

/// The selected steps, and messages for named steps that do not run. A job without a step selects its lowest numbered
/// step, as in sstat(1); with `-a` every step.
fn select_steps<'a>(
    named: &[NamedJob],
    found: &'a [JobUsage],
    all: bool,
) -> (Vec<(&'a str, &'a StepUsage)>, Vec<String>) {
    let mut steps = Vec::new();
    let mut missing = Vec::new();
    for one in named {
        let before = steps.len();
        let jobs = found.iter().filter(|job| {
            let array = job.shown.split_once('_').and_then(|(id, _)| id.parse().ok());
            job.job == one.job.id || array == Some(one.job.id.0)
        });
        for job in jobs {
            let lowest = job.steps.iter().filter(|s| matches!(s.step, StepId::Number(_)));
            let lowest = lowest.map(|s| s.step).min();
            let meant = job.steps.iter().filter(|step| match one.step {
                Some(wanted) => step.step == wanted,
                None => all || Some(step.step) == lowest,
            });
            steps.extend(meant.map(|step| (job.shown.as_str(), step)));
        }
        if steps.len() == before {
            let step = one.step.map(|step| format!(".{step}")).unwrap_or_default();
            missing.push(format!("couldn't get steps for job {}{step}", one.job.id));
        }
    }
    (steps, missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::id::JobId;
    use model::usage::TaskUsage;

    #[test]
    fn a_job_selects_its_lowest_step_and_a_step_id_that_step() {
        let step = |step| StepUsage {
            step,
            nodes: Vec::new(),
            tasks: 1,
            used: TaskUsage::default(),
            pids: Vec::new(),
            cpu_frequency: None,
        };
        let steps = vec![step(StepId::Batch), step(StepId::Number(2)), step(StepId::Number(1))];
        let found = [JobUsage { job: JobId(9), shown: "7_3".into(), steps, loads: Vec::new() }];
        let shown = |text: &str, all| {
            let named = job_names::parse_jobs(text).expect("names");
            let (steps, missing) = select_steps(&named, &found, all);
            let shown: Vec<String> =
                steps.iter().map(|(job, step)| format!("{job}.{}", step.step)).collect();
            (shown.join(" "), missing)
        };
        assert_eq!(shown("9", false), ("7_3.1".into(), vec![]));
        assert_eq!(shown("7_3.batch", false), ("7_3.batch".into(), vec![]));
        assert_eq!(shown("9", true).0, "7_3.batch 7_3.2 7_3.1");
        let none = vec!["couldn't get steps for job 9.5".to_owned()];
        assert_eq!(shown("9.5", false), (String::new(), none));
    }
}
