//! What the PAM module and the agent of the same machine say to each other: a line each way, over a socket that only
//! root can reach. Plain words, so that the module stays small.

use model::id::JobId;
use std::fmt;
use std::str::FromStr;

/// Where the agent listens, below its state folder.
pub const SOCKET: &str = "agent/login.sock";
/// The longest line of either side; a longer one is not of ours.
pub const LINE_BYTES_MAX: usize = 512;

const WORD: &str = "login1";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// How many jobs does the user have here?
    Look,
    /// Move the asking process into the newest of them.
    Enter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    pub wish: Wish,
    pub uid: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
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
pub struct NotALine(String);

impl fmt::Display for Ask {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let wish = match self.wish {
            Wish::Look => "look",
            Wish::Enter => "enter",
        };
        write!(out, "{WORD} {wish} {}", self.uid)
    }
}

impl FromStr for Ask {
    type Err = NotALine;

    fn from_str(line: &str) -> Result<Ask, NotALine> {
        let wrong = || NotALine(line.to_owned());
        let mut words = line.split(' ');
        let (first, wish, uid) = (words.next(), words.next(), words.next());
        let wish = match wish {
            Some("look") => Wish::Look,
            Some("enter") => Wish::Enter,
            _ => return Err(wrong()),
        };
        let uid = uid.and_then(|word| word.parse().ok());
        match (first, uid, words.next()) {
            (Some(WORD), Some(uid), None) => Ok(Ask { wish, uid }),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Answer::Jobs(count) => write!(out, "jobs {count}"),
            Answer::Entered(job) => write!(out, "entered {}", job.0),
            Answer::NoJobs => out.write_str("none"),
            Answer::Failed(why) => {
                // One line, whatever the words were.
                let plain = why.chars().map(|c| if c.is_control() { ' ' } else { c });
                write!(out, "failed {}", plain.take(200).collect::<String>())
            }
        }
    }
}

impl FromStr for Answer {
    type Err = NotALine;

    fn from_str(line: &str) -> Result<Answer, NotALine> {
        let wrong = || NotALine(line.to_owned());
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "jobs" => match rest.parse() {
                Ok(count) if count > 0 => Ok(Answer::Jobs(count)),
                _ => Err(wrong()),
            },
            "entered" => rest.parse().map(|id| Answer::Entered(JobId(id))).map_err(|_| wrong()),
            "none" if rest.is_empty() => Ok(Answer::NoJobs),
            "failed" => Ok(Answer::Failed(rest.to_owned())),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_both_ways() {
        for ask in [Ask { wish: Wish::Look, uid: 0 }, Ask { wish: Wish::Enter, uid: u32::MAX }] {
            assert_eq!(ask.to_string().parse(), Ok(ask));
        }
        for answer in [
            Answer::Jobs(3),
            Answer::Entered(JobId(7)),
            Answer::NoJobs,
            Answer::Failed("cannot open /x: gone".into()),
        ] {
            assert_eq!(answer.to_string().parse(), Ok(answer));
        }
    }

    #[test]
    fn what_is_not_whole_lets_nobody_in() {
        for line in ["", "jobs", "jobs 0", "jobs -1", "entered", "entered x", "none 1", "Entered 1"]
        {
            assert!(line.parse::<Answer>().is_err(), "{line:?}");
        }
        for line in ["", "login1 enter", "login1 enter x", "login1 enter 1 2", "login2 enter 1"] {
            assert!(line.parse::<Ask>().is_err(), "{line:?}");
        }
        let long = Answer::Failed(format!("a\nentered 1{}", "x".repeat(1000))).to_string();
        assert!(!long.contains('\n') && long.len() < LINE_BYTES_MAX, "{long}");
    }
}
