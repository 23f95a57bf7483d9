//! `scontrol show assoc_mgr [accounts=…] [flags=users,assoc,qos] [qos=…] [users=…]`.

use crate::command::slurm::query::{self, CommandError, Server};
use ::slurm::option::value;
use ::slurm::output::scontrol::assoc_mgr::{Answers, Selection};
use nix::unistd::User;
use std::process::ExitCode;
use wire::client::{Answer, Call, Detail, JobsQuery};
use wire::job_list::JobList;

pub fn run(words: &[String]) -> Result<ExitCode, CommandError> {
    let wanted = selection(words)?;
    let mut server = Server::find("slurm_load_assoc_mgr_info error")?;
    let accounts = match server.ask(Call::Accounts)? {
        Answer::Accounts(accounts) => accounts,
        other => return Err(CommandError::unexpected(&other)),
    };
    let shares = match server.ask(Call::Shares)? {
        Answer::Shares(shares) => shares,
        other => return Err(CommandError::unexpected(&other)),
    };
    let query = JobsQuery { detail: Detail::Listing, ..JobsQuery::default() };
    let (now, jobs) = match server.ask(Call::Jobs(query))? {
        Answer::Jobs { now, jobs: JobList(jobs) } => (now, jobs),
        other => return Err(CommandError::unexpected(&other)),
    };
    let uid_of = |user: &str| User::from_name(user).ok().flatten().map(|user| user.uid.as_raw());
    let answers =
        Answers { accounts: &accounts, shares: &shares, jobs: &jobs, now, uid_of: &uid_of };
    query::print(&answers.text(&wanted))?;
    Ok(ExitCode::SUCCESS)
}

/// What is asked for; without words all of it.
fn selection(words: &[String]) -> Result<Selection, CommandError> {
    let wrong = |word: &str, expected: &str| {
        CommandError::message(format!(
            "invalid option:{word} for keyword:show: expected {expected}"
        ))
    };
    let mut wanted = Selection::default();
    for word in words {
        let expected = "accounts=, flags=, qos= or users=";
        let (key, names) = word.split_once('=').ok_or_else(|| wrong(word, expected))?;
        let names = value::list(names);
        match key.to_ascii_lowercase().as_str() {
            "account" | "accounts" => wanted.accounts = names,
            "user" | "users" => wanted.user_names = names,
            "qos" => wanted.qos_names = names,
            "flag" | "flags" => {
                let has = |flag: &str| names.iter().any(|name| name.eq_ignore_ascii_case(flag));
                let is_known = |name: &String| {
                    ["users", "assoc", "qos"].iter().any(|k| k.eq_ignore_ascii_case(name))
                };
                if !names.iter().all(is_known) {
                    return Err(wrong(word, "users, assoc or qos"));
                }
                (wanted.users, wanted.associations, wanted.qos) =
                    (has("users"), has("assoc"), has("qos"));
            }
            _ => return Err(wrong(word, expected)),
        }
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Selection, CommandError> {
        selection(&words.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn words_choose_sections_and_names() {
        let all = Selection::default();
        assert_eq!(read(&[]).expect("good"), all);
        let some = read(&["flags=qos,users", "Users=alice,bob"]).expect("good");
        let names = vec!["alice".to_owned(), "bob".to_owned()];
        assert_eq!(some, Selection { associations: false, user_names: names, ..all });
        for wrong in ["flags=jobs", "colour=red", "qos"] {
            assert!(read(&[wrong]).is_err(), "{wrong}");
        }
    }
}
