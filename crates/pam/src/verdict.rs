//! Who is let in, and into what: the rules, apart from PAM's own words for them.

use crate::agent_socket::LoginError;
use crate::options::{Action, Options, SeveralJobs};
use wire::login::{LoginAction, LoginAnswer, LoginRequest};

pub struct LoginUser<'a> {
    pub name: &'a str,
    pub uid: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Not our business: root, or a user that is left alone.
    Pass,
    /// Into this job, for the log.
    Entered(u32),
    /// As the options say, for a reason that the user is told and the log keeps.
    By(Action, String),
}

/// `ask` brings a question to the agent.
pub fn judge(
    options: &Options,
    user: &LoginUser,
    mut ask: impl FnMut(LoginRequest) -> Result<LoginAnswer, LoginError>,
) -> Verdict {
    if user.uid == 0 && options.ignore_root
        || options.ignored_users.iter().any(|name| name == user.name)
    {
        return Verdict::Pass;
    }
    let who = format!("user {} (uid={})", user.name, user.uid);
    if !options.wrong.is_empty() {
        let words = options.wrong.join(" ");
        return Verdict::By(Action::Deny, format!("{who}: pam_sluice does not know {words}"));
    }
    let mut of = |action| ask(LoginRequest { action, uid: user.uid });
    let no_answer =
        |error: LoginError| Verdict::By(options.generic_failure, format!("{who}: {error}"));
    let odd =
        || Verdict::By(options.generic_failure, format!("{who}: the agent is not understood"));
    let no_jobs = || {
        let words = format!("{who} has no active jobs on this node.");
        Verdict::By(options.no_jobs, words)
    };
    if let SeveralJobs::Otherwise(action) = options.several {
        match of(LoginAction::Count) {
            Err(error) => return no_answer(error),
            Ok(LoginAnswer::NoJobs) => return no_jobs(),
            Ok(LoginAnswer::Jobs(1)) => {}
            Ok(LoginAnswer::Jobs(count)) => {
                let words =
                    format!("{who} has {count} jobs on this node; which is meant is not known.");
                return Verdict::By(action, words);
            }
            Ok(_) => return odd(),
        }
    }
    match of(LoginAction::Enter) {
        Err(error) => no_answer(error),
        Ok(LoginAnswer::NoJobs) => no_jobs(),
        Ok(LoginAnswer::Entered(job)) => Verdict::Entered(job.0),
        Ok(LoginAnswer::Failed(why)) => {
            Verdict::By(options.adopt_failure, format!("{who} cannot enter a job: {why}"))
        }
        Ok(LoginAnswer::Jobs(_)) => odd(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(words: &[&str], name: &str, uid: u32, answers: &[LoginAnswer]) -> Verdict {
        let mut answers = answers.iter().cloned();
        judge(&Options::parse(words.iter().copied()), &LoginUser { name, uid }, |_| {
            answers.next().ok_or_else(|| std::io::Error::other("nobody there").into())
        })
    }

    fn action(verdict: &Verdict) -> Option<Action> {
        match verdict {
            Verdict::By(action, _) => Some(*action),
            _ => None,
        }
    }

    fn entered() -> LoginAnswer {
        "entered 7".parse().expect("an answer")
    }

    #[test]
    fn root_and_ignored_users_pass_and_nobody_else() {
        assert_eq!(judged(&[], "root", 0, &[]), Verdict::Pass);
        assert_eq!(judged(&["ignore_users=bo,ann"], "ann", 5, &[]), Verdict::Pass);
        assert_eq!(action(&judged(&["ignore_root=0"], "root", 0, &[])), Some(Action::Deny));
        assert_eq!(action(&judged(&["ignore_users=bo"], "b", 5, &[])), Some(Action::Deny));
    }

    #[test]
    fn a_job_lets_in_and_none_does_not() {
        assert_eq!(judged(&[], "ann", 5, &[entered()]), Verdict::Entered(7));
        let words = "user ann (uid=5) has no active jobs on this node.";
        let refused = Verdict::By(Action::Deny, words.into());
        assert_eq!(judged(&[], "ann", 5, &[LoginAnswer::NoJobs]), refused);
        let ignored = judged(&["action_no_jobs=ignore"], "ann", 5, &[LoginAnswer::NoJobs]);
        assert_eq!(action(&ignored), Some(Action::Ignore));
    }

    #[test]
    fn what_fails_is_closed_unless_told_otherwise() {
        for answers in [&[][..], &[LoginAnswer::Failed("gone".into())], &[LoginAnswer::Jobs(1)]] {
            assert_eq!(action(&judged(&[], "ann", 5, answers)), Some(Action::Deny), "{answers:?}");
        }
        let wrong = judged(&["action_no_job=allow"], "ann", 5, &[entered()]);
        assert_eq!(action(&wrong), Some(Action::Deny), "a word that is not known denies the login");
        let open = judged(&["action_generic_failure=allow"], "ann", 5, &[]);
        assert_eq!(action(&open), Some(Action::Allow));
        let failed =
            judged(&["action_adopt_failure=allow"], "ann", 5, &[LoginAnswer::Failed("x".into())]);
        assert_eq!(action(&failed), Some(Action::Allow));
    }

    #[test]
    fn one_of_several_jobs_is_meant_only_if_newest_is() {
        let deny = ["action_unknown=deny"];
        assert_eq!(
            judged(&deny, "ann", 5, &[LoginAnswer::Jobs(1), entered()]),
            Verdict::Entered(7)
        );
        assert_eq!(
            action(&judged(&deny, "ann", 5, &[LoginAnswer::Jobs(2), entered()])),
            Some(Action::Deny)
        );
        assert_eq!(action(&judged(&deny, "ann", 5, &[LoginAnswer::NoJobs])), Some(Action::Deny));
    }
}
