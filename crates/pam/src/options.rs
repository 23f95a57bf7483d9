//! The module's options in the PAM file, named as those of Slurm's `pam_slurm_adopt`.

use std::path::PathBuf;

/// The reaction to a login that cannot join a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Deny,
    /// Admit without a job.
    Allow,
    /// Leave the decision to the next line of the PAM file.
    Ignore,
}

/// Which job a user with several jobs joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeveralJobs {
    Newest,
    Otherwise(Action),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The agent's state folder.
    pub state: PathBuf,
    pub no_jobs: Action,
    pub several: SeveralJobs,
    pub adopt_failure: Action,
    /// For an agent that does not answer.
    pub generic_failure: Action,
    pub ignore_root: bool,
    pub ignored_users: Vec<String>,
    /// Unknown options: with any of them only root is admitted.
    pub wrong: Vec<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            state: "/var/lib/sluice".into(),
            no_jobs: Action::Deny,
            several: SeveralJobs::Newest,
            adopt_failure: Action::Deny,
            generic_failure: Action::Deny,
            ignore_root: true,
            ignored_users: Vec::new(),
            wrong: Vec::new(),
        }
    }
}

impl Options {
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Options {
        let mut options = Options::default();
        for word in words {
            if options.set(word).is_none() {
                options.wrong.push(word.to_owned());
            }
        }
        options
    }

    fn set(&mut self, word: &str) -> Option<()> {
        let (name, value) = word.split_once('=')?;
        match name {
            "state" if value.starts_with('/') => self.state = value.into(),
            "action_no_jobs" => self.no_jobs = action(value)?,
            "action_unknown" if value == "newest" => self.several = SeveralJobs::Newest,
            "action_unknown" => self.several = SeveralJobs::Otherwise(action(value)?),
            "action_adopt_failure" => self.adopt_failure = action(value)?,
            "action_generic_failure" => self.generic_failure = action(value)?,
            "ignore_root" => self.ignore_root = yes_or_no(value)?,
            "ignore_users" => {
                let names = value.split(',').filter(|name| !name.is_empty());
                self.ignored_users.extend(names.map(str::to_owned));
            }
            _ => return None,
        }
        Some(())
    }
}

fn action(word: &str) -> Option<Action> {
    match word {
        "deny" => Some(Action::Deny),
        "allow" => Some(Action::Allow),
        "ignore" => Some(Action::Ignore),
        _ => None,
    }
}

fn yes_or_no(word: &str) -> Option<bool> {
    match word {
        "1" => Some(true),
        "0" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed_and_unknown_ones_kept() {
        assert_eq!(Options::parse([]), Options::default());
        let all = Options::parse([
            "state=/srv/sluice",
            "action_no_jobs=ignore",
            "action_unknown=deny",
            "action_adopt_failure=allow",
            "action_generic_failure=allow",
            "ignore_root=0",
            "ignore_users=backup,monitor",
        ]);
        let expected = Options {
            state: "/srv/sluice".into(),
            no_jobs: Action::Ignore,
            several: SeveralJobs::Otherwise(Action::Deny),
            adopt_failure: Action::Allow,
            generic_failure: Action::Allow,
            ignore_root: false,
            ignored_users: vec!["backup".into(), "monitor".into()],
            wrong: Vec::new(),
        };
        assert_eq!(all, expected);
        for word in ["debug", "state=here", "action_no_jobs=permit", "ignore_root=yes", "x=1", ""] {
            assert_eq!(Options::parse([word]).wrong, [word]);
        }
    }
}
