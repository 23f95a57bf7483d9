//! The words after the module's name in the PAM file, as far as they go by the names that Slurm's module gives them.

use std::path::PathBuf;

/// What becomes of a login that a rule does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Deny,
    /// Let in without a job.
    Allow,
    /// As if the module were not there: the next line of the PAM file decides.
    Ignore,
}

/// Which job a user with several comes into.
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
    /// The agent does not answer.
    pub generic_failure: Action,
    pub ignore_root: bool,
    pub ignored_users: Vec<String>,
    /// Words that were not understood: then nobody but root is let in.
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
    fn words_are_read_and_what_is_wrong_is_kept() {
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
