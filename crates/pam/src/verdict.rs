//! The rules: who may log in, and into which job.

use crate::agent_socket::LoginError;
use crate::options::{Action, Options, SeveralJobs};
use wire::login::{LoginAction, LoginAnswer, LoginRequest};

pub struct LoginUser<'a> {
    pub name: &'a str,
    pub uid: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Not decided here: root, or an ignored user.
    Ignored,
    /// Admitted into this job.
    Entered(u32),
    /// As the options say, with the reason for the user and the log.
    Fallback(Action, String),
}

/// Decides about a login; `ask` sends a request to the agent.
pub fn decide(
    options: &Options,
    user: &LoginUser,
    mut ask: impl FnMut(LoginRequest) -> Result<LoginAnswer, LoginError>,
) -> Verdict {
    if user.uid == 0 && options.ignore_root
        || options.ignored_users.iter().any(|name| name == user.name)
    {
        return Verdict::Ignored;
    }
    let who = format!("user {} (uid={})", user.name, user.uid);
    if !options.wrong.is_empty() {
        let words = options.wrong.join(" ");
        return Verdict::Fallback(Action::Deny, format!("{who}: pam_sluice does not know {words}"));
    }
    let mut of = |action| ask(LoginRequest { action, uid: user.uid });
    let no_answer =
        |error: LoginError| Verdict::Fallback(options.generic_failure, format!("{who}: {error}"));
    let odd = || {
        Verdict::Fallback(options.generic_failure, format!("{who}: the agent is not understood"))
    };
    let no_jobs = || {
        let words = format!("{who} has no active jobs on this node.");
        Verdict::Fallback(options.no_jobs, words)
    };
    if let SeveralJobs::Otherwise(action) = options.several {
        match of(LoginAction::Count) {
            Err(error) => return no_answer(error),
            Ok(LoginAnswer::NoJobs) => return no_jobs(),
            Ok(LoginAnswer::Jobs(1)) => {}
            Ok(LoginAnswer::Jobs(count)) => {
                let words =
                    format!("{who} has {count} jobs on this node; which is meant is not known.");
                return Verdict::Fallback(action, words);
            }
            Ok(_) => return odd(),
        }
    }
    match of(LoginAction::Enter) {
        Err(error) => no_answer(error),
        Ok(LoginAnswer::NoJobs) => no_jobs(),
        Ok(LoginAnswer::Entered(job)) => Verdict::Entered(job.0),
        Ok(LoginAnswer::Failed(why)) => {
            Verdict::Fallback(options.adopt_failure, format!("{who} cannot enter a job: {why}"))
        }
        Ok(LoginAnswer::Jobs(_)) => odd(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(words: &[&str], name: &str, uid: u32, answers: &[LoginAnswer]) -> Verdict {
        let mut answers = answers.iter().cloned();
        decide(&Options::parse(words.iter().copied()), &LoginUser { name, uid }, |_| {
            answers.next().ok_or_else(|| std::io::Error::other("nobody there").into())
        })
    }

    fn action(verdict: &Verdict) -> Option<Action> {
        match verdict {
            Verdict::Fallback(action, _) => Some(*action),
            _ => None,
        }
    }

    fn entered() -> LoginAnswer {
        "entered 7".parse().expect("an answer")
    }

    #[test]
    fn only_root_and_ignored_users_pass() {
        assert_eq!(decided(&[], "root", 0, &[]), Verdict::Ignored);
        assert_eq!(decided(&["ignore_users=bo,ann"], "ann", 5, &[]), Verdict::Ignored);
        assert_eq!(action(&decided(&["ignore_root=0"], "root", 0, &[])), Some(Action::Deny));
        assert_eq!(action(&decided(&["ignore_users=bo"], "b", 5, &[])), Some(Action::Deny));
    }

    #[test]
    fn user_with_a_job_enters_it_and_without_one_is_denied() {
        assert_eq!(decided(&[], "ann", 5, &[entered()]), Verdict::Entered(7));
        let words = "user ann (uid=5) has no active jobs on this node.";
        let refused = Verdict::Fallback(Action::Deny, words.into());
        assert_eq!(decided(&[], "ann", 5, &[LoginAnswer::NoJobs]), refused);
        let ignored = decided(&["action_no_jobs=ignore"], "ann", 5, &[LoginAnswer::NoJobs]);
        assert_eq!(action(&ignored), Some(Action::Ignore));
    }

    #[test]
    fn failures_deny_unless_an_option_says_otherwise() {
        for answers in [&[][..], &[LoginAnswer::Failed("gone".into())], &[LoginAnswer::Jobs(1)]] {
            assert_eq!(action(&decided(&[], "ann", 5, answers)), Some(Action::Deny), "{answers:?}");
        }
        let wrong = decided(&["action_no_job=allow"], "ann", 5, &[entered()]);
        assert_eq!(action(&wrong), Some(Action::Deny), "a word that is not known denies the login");
        let open = decided(&["action_generic_failure=allow"], "ann", 5, &[]);
        assert_eq!(action(&open), Some(Action::Allow));
        let failed =
            decided(&["action_adopt_failure=allow"], "ann", 5, &[LoginAnswer::Failed("x".into())]);
        assert_eq!(action(&failed), Some(Action::Allow));
    }

    #[test]
    fn one_of_several_jobs_is_entered_only_if_the_newest_is_chosen() {
        let deny = ["action_unknown=deny"];
        assert_eq!(
            decided(&deny, "ann", 5, &[LoginAnswer::Jobs(1), entered()]),
            Verdict::Entered(7)
        );
        assert_eq!(
            action(&decided(&deny, "ann", 5, &[LoginAnswer::Jobs(2), entered()])),
            Some(Action::Deny)
        );
        assert_eq!(action(&decided(&deny, "ann", 5, &[LoginAnswer::NoJobs])), Some(Action::Deny));
    }
}
