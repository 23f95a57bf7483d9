//! `sluice explain JOB…`: why a job waits, and when it is expected to start.

mod text;

use super::slurm::query::job_names;
use super::verb::{ServerLocationArgs, VerbError, VerbResult};
use ::slurm::output::Moment;
use clap::Args;
use jiff::tz::TimeZone;
use std::io::Write;
use std::process::ExitCode;
use wire::client::{Answer, Call};
use wire::explain::ExplainQuery;

#[derive(Args)]
pub struct ExplainArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
    /// Jobs by number (12, 12_3, 12_[4-7]), or runs by name
    #[arg(required = true)]
    jobs: Vec<String>,
    /// As data
    #[arg(long)]
    json: bool,
}

pub fn run(args: ExplainArgs) -> VerbResult {
    let mut client = args.server.client()?;
    let explained = match client.call(Call::Explain(read_query(&args.jobs)?))? {
        Answer::Explained(explained) => explained,
        Answer::Refused(why) => return Err(why.into()),
        other => {
            let text: String = format!("{other:?}").chars().take(80).collect();
            return Err(VerbError::Message(format!("the server answered something else: {text}")));
        }
    };
    let text = if args.json {
        let json = serde_json::to_string_pretty(&explained);
        json.map_err(|e| VerbError::Message(e.to_string()))? + "\n"
    } else {
        let tz = TimeZone::system();
        let moment = Moment { now: ::server::clock::now(), tz: &tz };
        let each = explained.iter().map(|job| text::explained(job, moment));
        each.collect::<Vec<_>>().join("\n")
    };
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A reader that has gone is no error.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(VerbError::file("standard output")(error))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// A word that begins with a digit is a job id; the name of a run begins with a letter.
fn read_query(words: &[String]) -> Result<ExplainQuery, VerbError> {
    let mut wanted = ExplainQuery::default();
    for word in words {
        if !word.starts_with(|c: char| c.is_ascii_digit()) {
            wanted.names.push(word.clone());
            continue;
        }
        match job_names::parse_job(word) {
            Some(named) if named.step.is_none() => wanted.jobs.push(named.job),
            _ => {
                let right = "right is 12, 12_3, 12_[4-7] or a run's name";
                return Err(VerbError::Message(format!("{word:?} names no job: {right}")));
            }
        }
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numeric_words_are_jobs_and_others_are_runs() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let both = read_query(&words("12 hello 13_3")).unwrap();
        assert_eq!((both.jobs.len(), both.names), (2, vec!["hello".to_owned()]));
        for bad in ["0", "12.0", "12_", "12x", "12_[5-"] {
            let why = read_query(&words(bad)).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(why.starts_with(&format!("{bad:?} names no job")), "{bad}: {why}");
        }
    }
}
