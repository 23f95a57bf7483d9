//! The protocol between the PAM module and the agent of the same machine: a line each way, over a socket that only root
//! can reach. The lines are plain words and not JSON, so that the module stays small.

use model::id::JobId;
use std::fmt;
use std::str::FromStr;

/// The agent's socket for logins, below its state folder.
pub const SOCKET: &str = "agent/login.sock";
/// The longest line of either side; a longer one is refused.
pub const LINE_BYTES_MAX: usize = 512;

const PROTOCOL: &str = "login1";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginAction {
    /// Says how many jobs the user has here.
    Count,
    /// Moves the asking process into the newest of them.
    Enter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoginRequest {
    pub action: LoginAction,
    pub uid: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginAnswer {
    /// So many jobs run here; never none.
    Jobs(u32),
    /// The asking process is now part of this job, and ends with it. With the line come, as descriptors, the namespaces
    /// that the job has for itself, which a process can only enter by itself.
    Entered(JobId),
    NoJobs,
    Failed(String),
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a line of this protocol: {0:?}")]
pub struct MalformedLine(String);

impl fmt::Display for LoginRequest {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let action = match self.action {
            LoginAction::Count => "look",
            LoginAction::Enter => "enter",
        };
        write!(out, "{PROTOCOL} {action} {}", self.uid)
    }
}

impl FromStr for LoginRequest {
    type Err = MalformedLine;

    fn from_str(line: &str) -> Result<LoginRequest, MalformedLine> {
        let wrong = || MalformedLine(line.to_owned());
        let mut words = line.split(' ');
        let (first, action, uid) = (words.next(), words.next(), words.next());
        let action = match action {
            Some("look") => LoginAction::Count,
            Some("enter") => LoginAction::Enter,
            _ => return Err(wrong()),
        };
        let uid = uid.and_then(|word| word.parse().ok());
        match (first, uid, words.next()) {
            (Some(PROTOCOL), Some(uid), None) => Ok(LoginRequest { action, uid }),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for LoginAnswer {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            LoginAnswer::Jobs(count) => write!(out, "jobs {count}"),
            LoginAnswer::Entered(job) => write!(out, "entered {}", job.0),
            LoginAnswer::NoJobs => out.write_str("none"),
            LoginAnswer::Failed(why) => {
                // One line, whatever the words were.
                let plain = why.chars().map(|c| if c.is_control() { ' ' } else { c });
                write!(out, "failed {}", plain.take(200).collect::<String>())
            }
        }
    }
}

impl FromStr for LoginAnswer {
    type Err = MalformedLine;

    fn from_str(line: &str) -> Result<LoginAnswer, MalformedLine> {
        let wrong = || MalformedLine(line.to_owned());
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "jobs" => match rest.parse() {
                Ok(count) if count > 0 => Ok(LoginAnswer::Jobs(count)),
                _ => Err(wrong()),
            },
            "entered" => {
                rest.parse().map(|id| LoginAnswer::Entered(JobId(id))).map_err(|_| wrong())
            }
            "none" if rest.is_empty() => Ok(LoginAnswer::NoJobs),
            "failed" => Ok(LoginAnswer::Failed(rest.to_owned())),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_are_read_back() {
        for request in [
            LoginRequest { action: LoginAction::Count, uid: 0 },
            LoginRequest { action: LoginAction::Enter, uid: u32::MAX },
        ] {
            assert_eq!(request.to_string().parse(), Ok(request));
        }
        for answer in [
            LoginAnswer::Jobs(3),
            LoginAnswer::Entered(JobId(7)),
            LoginAnswer::NoJobs,
            LoginAnswer::Failed("cannot open /x: gone".into()),
        ] {
            assert_eq!(answer.to_string().parse(), Ok(answer));
        }
    }

    #[test]
    fn malformed_line_lets_nobody_in() {
        for line in ["", "jobs", "jobs 0", "jobs -1", "entered", "entered x", "none 1", "Entered 1"]
        {
            assert!(line.parse::<LoginAnswer>().is_err(), "{line:?}");
        }
        for line in ["", "login1 enter", "login1 enter x", "login1 enter 1 2", "login2 enter 1"] {
            assert!(line.parse::<LoginRequest>().is_err(), "{line:?}");
        }
        let long = LoginAnswer::Failed(format!("a\nentered 1{}", "x".repeat(1000))).to_string();
        assert!(!long.contains('\n') && long.len() < LINE_BYTES_MAX, "{long}");
    }
}
