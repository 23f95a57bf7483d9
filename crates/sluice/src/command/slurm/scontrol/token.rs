//! `scontrol token [lifespan=SECONDS] [username=NAME]`: a token for Slurm's REST API, in the variable that its clients read. With
//! `AuthAltTypes=auth/jwt` it is a JSON Web Token, else a token as `sluice token user` makes them.

use crate::command::slurm::query::{self, CommandError, Server};
use std::process::ExitCode;
use wire::client::{Answer, Call};

const REQUEST: &str = "scontrol: error";

/// Slurm's own, in seconds.
const LIFE_S: u64 = 1800;

/// A token without an end is one of a year here.
const LONGEST_LIFE_S: u64 = 365 * 24 * 3600;

#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    life_s: u64,
    /// `None` for the caller.
    user: Option<String>,
}

fn read(words: &[String]) -> Result<Wanted, CommandError> {
    let mut wanted = Wanted { life_s: LIFE_S, user: None };
    for word in words {
        let bad = |expected: &str| {
            CommandError::message(format!("scontrol: error: token: {word}: expected {expected}"))
        };
        match word.split_once('=') {
            Some((key, value)) if key.eq_ignore_ascii_case("lifespan") => {
                let seconds = match value {
                    "infinite" => Some(LONGEST_LIFE_S),
                    number => number.parse::<u64>().ok().filter(|seconds| *seconds > 0),
                };
                wanted.life_s = seconds.ok_or_else(|| bad("lifespan=SECONDS"))?;
            }
            Some((key, value)) if key.eq_ignore_ascii_case("username") && !value.is_empty() => {
                wanted.user = Some(value.to_owned());
            }
            _ => return Err(bad("lifespan=SECONDS or username=NAME")),
        }
    }
    Ok(wanted)
}

pub fn run(words: &[String]) -> Result<ExitCode, CommandError> {
    let Wanted { life_s, user } = read(words)?;
    let mut server = Server::find(REQUEST)?;
    let call = Call::RestToken { user, life_s };
    match server.ask(call)? {
        Answer::Token { text, user_unknown, .. } => {
            query::print(&format!("SLURM_JWT={text}\n"))?;
            if user_unknown {
                eprintln!(
                    "scontrol: note: the server's machine has no such user: the token is refused until it has one"
                );
            }
        }
        _ => return Err(CommandError::message("scontrol: error: the server made no token")),
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn life_and_user_are_read_and_other_words_refused() {
        let plain = read(&[]).ok();
        assert_eq!(plain, Some(Wanted { life_s: 1800, user: None }));
        let given = read(&words("lifespan=60 username=ann")).ok();
        let expected = Wanted { life_s: 60, user: Some("ann".into()) };
        assert_eq!(given, Some(expected));
        for bad in ["lifespan=0", "lifespan=x", "lifespan", "username=", "role=admin"] {
            assert!(read(&words(bad)).is_err(), "{bad}");
        }
    }
}
