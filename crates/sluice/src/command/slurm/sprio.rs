//! `sprio`: the factors of pending jobs' priorities.

use super::query::job_names;
use super::query::{self, CommandError, Server};
use ::slurm::option::{Command, OptionKey as K, Parsed, value};
use ::slurm::output::sprio::{self as output, Options, SprioError};
use std::io;
use std::process::ExitCode;
use wire::client::{Answer, Call};
use wire::view::{PrioritiesView, PriorityView};

const REQUEST: &str = "Couldn't get priority factors from controller";

pub fn run(args: &[String]) -> ExitCode {
    query::finish(Command::Sprio, list(args))
}

fn list(args: &[String]) -> Result<ExitCode, CommandError> {
    let Some(parsed) = query::options(Command::Sprio, args)? else { return Ok(ExitCode::SUCCESS) };
    let wanted = PriorityFilter::new(&parsed)?;
    let mut server = Server::find(REQUEST)?;
    let view = match server.ask(Call::Priorities)? {
        Answer::Priorities(view) => view,
        other => return Err(CommandError::unexpected(&other)),
    };
    if view.basic {
        return Err(CommandError::message(
            "You are not running a supported priority plugin\n(priority/basic).\n\
             Only 'priority/multifactor' is supported.",
        ));
    }
    let jobs = wanted.select(&view);
    if jobs.is_empty() && !wanted.jobs.is_empty() {
        query::print("Unable to find jobs matching user/id(s) specified\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = Options {
        format: parsed.text(K::Format).map(str::to_owned),
        sort: parsed.text(K::Sort).map(str::to_owned),
        no_header: parsed.has(K::Noheader),
        long: parsed.has(K::Long),
        normalized: parsed.has(K::Norm),
        weights: parsed.has(K::Weights),
        users: parsed.has(K::Users),
    };
    match output::show(&mut io::stdout().lock(), &view, &jobs, &options) {
        Ok(warnings) => {
            warnings.iter().for_each(|warning| eprintln!("sprio: error: {warning}"));
            Ok(ExitCode::SUCCESS)
        }
        Err(SprioError::Sort(error)) => {
            Err(CommandError::message(format!("sprio: error: {error}")))
        }
        Err(SprioError::Write(error)) => Err(error.into()),
    }
}

/// Which jobs are shown; an empty list is all.
struct PriorityFilter {
    jobs: Vec<u32>,
    users: Option<Vec<String>>,
    partitions: Vec<String>,
}

impl PriorityFilter {
    fn new(parsed: &Parsed) -> Result<Self, CommandError> {
        let number = |word: String| {
            let id: Option<u32> = word.parse().ok();
            id.ok_or_else(|| CommandError::message(format!("sprio: error: Invalid job id: {word}")))
        };
        let jobs = value::list(parsed.text(K::Jobs).unwrap_or_default());
        let users = parsed.text(K::Users).map(|text| {
            let mut users = job_names::parse_users(text, query::user_name);
            query::drop_unknown_users(Command::Sprio, &mut users);
            users
        });
        Ok(Self {
            jobs: jobs.into_iter().map(number).collect::<Result<_, _>>()?,
            users,
            partitions: value::list(parsed.text(K::Partition).unwrap_or_default()),
        })
    }

    fn select<'a>(&self, view: &'a PrioritiesView) -> Vec<&'a PriorityView> {
        let fits = |job: &&PriorityView| {
            let id = job.array.as_ref().map_or(job.job, |array| array.array);
            (self.jobs.is_empty() || self.jobs.contains(&id.0) || self.jobs.contains(&job.job.0))
                && self.users.as_ref().is_none_or(|users| users.contains(&job.user))
                && (self.partitions.is_empty() || self.partitions.contains(&job.partition))
        };
        view.jobs.iter().filter(fits).collect()
    }
}
