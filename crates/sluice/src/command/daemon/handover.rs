//! `sluice server handover`: the leader gives the lead to a server that waits; says who leads then.

use crate::client::{Client, ClientError};
use crate::command::verb::{VerbError, VerbResult, ask};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use wire::client::{Answer, Call, ServerView};

/// How long the next leader is waited for.
const TIMEOUT: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(50);

pub fn run() -> VerbResult {
    let mut client = Client::find()?;
    let before = leader(&mut client)?.map_or(0, |leader| leader.term);
    ask(&mut client, Call::Handover)?;
    let end = Instant::now() + TIMEOUT;
    while Instant::now() < end {
        match leader(&mut client) {
            Ok(Some(next)) if next.term > before => {
                println!("{} leads, in term {}", next.name, next.term);
                return Ok(ExitCode::SUCCESS);
            }
            // The server that was asked has ended, and nothing has started it again.
            Err(VerbError::Client(ClientError::Unreachable { .. })) => {
                println!("the lead was given up; this machine's server has ended");
                return Ok(ExitCode::SUCCESS);
            }
            Ok(_) => {}
            Err(error) => return Err(error),
        }
        std::thread::sleep(PAUSE);
    }
    Err(VerbError::Message("the lead was given up, and nobody leads yet (scontrol ping)".into()))
}

/// Who leads, as far as the server that is asked knows.
fn leader(client: &mut Client) -> Result<Option<ServerView>, VerbError> {
    match client.call_again(Call::Ping)? {
        Answer::Pong { servers, .. } => Ok(servers.into_iter().find(|server| server.is_leader)),
        other => Err(VerbError::Message(format!("the server answered {other:?}"))),
    }
}
