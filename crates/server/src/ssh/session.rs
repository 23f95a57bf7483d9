//! One session channel: a step that runs in the job, and the bytes between it and the client.

use super::access::Access;
use super::channel_end::ChannelEnd;
use super::input_limit::Queued;
use super::launch::{SessionRequest, launch};
use super::step_client::{self, FromStep, StepClient, StepEnd, ToStep};
use crate::shared::Shared;
use bytes::Bytes;
use nix::sys::signal::Signal;
use russh::server::{Handle, Msg};
use russh::{ChannelWriteHalf, Sig};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Where programs find the agent of keys.
const AGENT_VARIABLE: &str = "SSH_AUTH_SOCK";
/// The number of standard error among the channel's kinds of data.
const STDERR: u32 = 1;
/// The exit status of a session that did not come about: that of an `ssh` without a connection.
const NOT_STARTED: u32 = 255;

/// What a client sends on a channel.
#[derive(Debug)]
pub enum FromClient {
    Bytes(Bytes),
    End,
    Resize { rows: u16, columns: u16 },
    Signal(i32),
}

/// What a client has sent and nobody has taken yet, each with its part of the connection's limit.
pub type ClientInput = mpsc::UnboundedReceiver<(FromClient, Queued)>;
pub type ClientSender = mpsc::UnboundedSender<(FromClient, Queued)>;

/// The channel's end towards the client.
pub struct Output {
    pub half: ChannelWriteHalf<Msg>,
    pub handle: Handle,
}

impl Output {
    async fn send(&self, report: FromStep) -> Result<(), russh::Error> {
        match report {
            FromStep::Stdout(bytes) => self.half.data_bytes(bytes).await,
            FromStep::Stderr(bytes) => self.half.extended_data_bytes(STDERR, bytes).await,
            FromStep::Ended(end) => self.end(end).await,
        }
    }

    async fn end(&self, end: StepEnd) -> Result<(), russh::Error> {
        match end {
            StepEnd::Exited(exit) if exit.signal == 0 => {
                self.half.exit_status(exit.code as u32).await?;
            }
            StepEnd::Exited(exit) => {
                // A client that has gone needs no status.
                let _ = self
                    .handle
                    .exit_signal_request(
                        self.half.id(),
                        signal_name(exit.signal),
                        false,
                        String::new(),
                        String::new(),
                    )
                    .await;
            }
            StepEnd::Failed(why) => self.fail(&why).await?,
        }
        self.half.eof().await?;
        self.half.close().await
    }

    async fn fail(&self, why: &str) -> Result<(), russh::Error> {
        let line = format!("sluice: {why}\r\n");
        self.half.extended_data_bytes(STDERR, line.into_bytes()).await?;
        self.half.exit_status(NOT_STARTED).await
    }
}

fn signal_name(signal: i32) -> Sig {
    let name = Signal::try_from(signal).map_or("KILL", |known| known.as_str());
    Sig::Custom(name.trim_start_matches("SIG").to_owned())
}

/// The number of a signal that a client names; `None` for one that is not known here.
pub fn signal_number(signal: &Sig) -> Option<i32> {
    let name = match signal {
        Sig::ABRT => "ABRT",
        Sig::ALRM => "ALRM",
        Sig::FPE => "FPE",
        Sig::HUP => "HUP",
        Sig::ILL => "ILL",
        Sig::INT => "INT",
        Sig::KILL => "KILL",
        Sig::PIPE => "PIPE",
        Sig::QUIT => "QUIT",
        Sig::SEGV => "SEGV",
        Sig::TERM => "TERM",
        Sig::USR1 => "USR1",
        Sig::Custom(name) => name,
    };
    format!("SIG{name}").parse::<Signal>().ok().map(|signal| signal as i32)
}

/// Runs the step until it ends, or until the client closes the channel. Where the client forwards its agent of keys, `agent`
/// tells the path of a socket in the job that leads to it.
pub async fn run(
    shared: Arc<Shared>,
    access: Access,
    mut request: SessionRequest,
    agent: Option<impl Future<Output = Option<String>>>,
    input: ClientInput,
    output: Output,
    mut end: ChannelEnd,
) {
    if let Some(socket) = agent {
        match socket.await {
            Some(path) => request.variables.push((AGENT_VARIABLE.to_owned(), path)),
            None => {
                let line = "sluice: the agent of keys cannot be forwarded into this job\r\n";
                let _ = output.half.extended_data_bytes(STDERR, line.as_bytes().to_vec()).await;
            }
        }
    }
    // Not given up half-way: a step that was created has a client, who ends it.
    let started = match launch(&shared, access.job, access.rank, &request) {
        Ok(launch) => step_client::start(&shared, access.by, access.job, launch).await,
        Err(why) => Err(why),
    };
    let serve = async {
        match started {
            Ok(step) => relay(step, input, &output).await,
            Err(why) => {
                // A client that has gone needs no reason.
                let _ = output.end(StepEnd::Failed(why.to_string())).await;
            }
        }
    };
    tokio::select! {
        () = serve => {}
        () = end.wait_and_deliver() => {}
    }
}

async fn relay(step: StepClient, mut input: ClientInput, output: &Output) {
    let StepClient { to, mut from } = step;
    let inward = async {
        while let Some((item, queued)) = input.recv().await {
            let message = match item {
                FromClient::Bytes(bytes) => ToStep::Input(bytes),
                FromClient::End => ToStep::InputEnd,
                FromClient::Resize { rows, columns } => ToStep::Resize { rows, columns },
                FromClient::Signal(signal) => ToStep::Signal(signal),
            };
            if to.send(message).await.is_err() {
                // The step has ended, and its last reports are on their way.
                std::future::pending::<()>().await;
            }
            drop(queued);
        }
    };
    let outward = async {
        while let Some(report) = from.recv().await {
            if output.send(report).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = inward => {}
        () = outward => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_known_by_the_names_of_the_protocol() {
        for (signal, number) in [
            (Sig::INT, Some(2)),
            (Sig::TERM, Some(15)),
            (Sig::Custom("USR2".into()), Some(12)),
            (Sig::Custom("NOSUCH".into()), None),
            (Sig::Custom(String::new()), None),
        ] {
            assert_eq!(signal_number(&signal), number, "{signal:?}");
        }
        assert!(matches!(signal_name(9), Sig::Custom(name) if name == "KILL"));
        assert!(matches!(signal_name(15), Sig::Custom(name) if name == "TERM"));
    }
}
