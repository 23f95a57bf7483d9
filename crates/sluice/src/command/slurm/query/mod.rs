//! What the querying and changing commands share: reading options, asking the server, printing text and errors.

pub mod job_names;
pub mod unknown_names;

use crate::client::{Client, ClientError, ListingReply, Patience, ServerLocation, login_file};
use ::slurm::option::parse::{Parsed, Question};
use ::slurm::option::{Command, OptionError, help, input_variables, parse, table};
use ::slurm::output::Moment;
use ::slurm::output::time_format::TimeFormat;
use ::slurm::words::refusal;
use jiff::fmt::temporal::DateTimePrinter;
use jiff::tz::TimeZone;
use model::pod::USER_VARIABLE;
use model::reason::Refusal;
use model::time::Timestamp;
use nix::unistd::{Uid, User, getuid};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::OnceLock;
use wire::client::{Answer, Call};

/// Why a command ends early.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The command line is wrong.
    #[error(transparent)]
    Option(#[from] OptionError),
    #[error("{request}: {}", source.in_slurms_words())]
    Unreachable { request: &'static str, source: ClientError },
    /// Whole lines in Slurm's words, for standard error.
    #[error("{text}")]
    Message { text: String, code: u8 },
    #[error("the server answered something else than was asked: {0}")]
    Unexpected(String),
    #[error("cannot print: {0}")]
    Output(#[from] io::Error),
}

impl CommandError {
    /// Lines for standard error, and exit code 1.
    pub fn message(text: impl Into<String>) -> Self {
        Self::Message { text: text.into(), code: 1 }
    }

    pub fn unexpected(answer: &Answer) -> Self {
        let mut text = format!("{answer:?}");
        text.truncate(text.char_indices().nth(80).map_or(text.len(), |(at, _)| at));
        Self::Unexpected(text)
    }
}

/// Ends a command: prints its error, and returns its exit code.
pub fn finish(command: Command, result: Result<ExitCode, CommandError>) -> ExitCode {
    let error = match result {
        Ok(code) => return code,
        // The reader has gone (`squeue | head`), so nothing can be printed.
        Err(CommandError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            return ExitCode::SUCCESS;
        }
        Err(error) => error,
    };
    let (text, code) = match error {
        CommandError::Option(error) => (error.render(command), error.exit_code(command) as u8),
        CommandError::Message { text, code } if text.is_empty() => (text, code),
        CommandError::Message { text, code } => (format!("{text}\n"), code),
        CommandError::Unreachable { .. } => (format!("{error}\n"), 1),
        other => (format!("{}: error: {other}\n", command.name()), 1),
    };
    // If standard error is closed as well, only the exit code is left.
    let _ = io::stderr().write_all(text.as_bytes());
    ExitCode::from(code)
}

/// The options of the command line, over those of the environment. `None` if help or version was asked for, and printed.
pub fn options(command: Command, args: &[String]) -> Result<Option<Parsed>, CommandError> {
    let mut parsed = parse::parse(command, args)?;
    if let Some(question) = parsed.question() {
        let text = match question {
            Question::Help => help::help(command),
            Question::Usage => help::usage(command),
            Question::Version => help::version(),
        };
        print(&text)?;
        return Ok(None);
    }
    for setting in &parsed.values {
        if let Some(line) = table::note(command, setting.key) {
            eprintln!("{}: {line}", command.name());
        }
    }
    if help::operands(command).is_empty()
        && let Some(word) = parsed.rest.first()
    {
        let name = command.name();
        eprintln!("{name}: note: {word:?} has no meaning here: {name} takes options alone");
    }
    let mut values = input_variables::settings(command, |name| std::env::var(name).ok());
    values.append(&mut parsed.values);
    Ok(Some(Parsed { values, ..parsed }))
}

pub fn print(text: &str) -> Result<(), CommandError> {
    print_bytes(text.as_bytes())
}

pub fn print_bytes(bytes: &[u8]) -> Result<(), CommandError> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    Ok(out.flush()?)
}

/// A connection to the server. `request` is the name that Slurm's own client gives the request when it fails.
pub struct Server {
    client: Client,
    request: &'static str,
}

impl Server {
    pub fn find(request: &'static str) -> Result<Self, CommandError> {
        let client =
            Client::find().map_err(|source| CommandError::Unreachable { request, source })?;
        Ok(Self { client, request })
    }

    /// Asks; a refusal ends the command.
    pub fn ask(&mut self, call: Call) -> Result<Answer, CommandError> {
        self.try_ask(call)?.map_err(|why| refused(self.request, &why))
    }

    /// As `ask`, for a request that may be answered with lines of text.
    pub fn ask_for_lines(&mut self, call: Call) -> Result<ListingReply, CommandError> {
        let request = self.request;
        let reply = self.client.call_for_lines(call);
        match reply.map_err(|source| CommandError::Unreachable { request, source })? {
            ListingReply::Answer(answer) => match *answer {
                Answer::Refused(why) => Err(refused(request, &why)),
                other => Ok(ListingReply::Answer(Box::new(other))),
            },
            lines => Ok(lines),
        }
    }

    /// Asks whether the server answers: one that shows nothing is not waited for.
    pub fn try_ping(&mut self) -> Result<Result<Answer, Refusal>, CommandError> {
        self.client.set_patience(Patience::SHORT);
        self.try_ask(Call::Ping)
    }

    /// Asks; the command handles a refusal itself.
    pub fn try_ask(&mut self, call: Call) -> Result<Result<Answer, Refusal>, CommandError> {
        let request = self.request;
        match self.client.call(call) {
            Ok(Answer::Refused(why)) => Ok(Err(why)),
            Ok(answer) => Ok(Ok(answer)),
            Err(source) => Err(CommandError::Unreachable { request, source }),
        }
    }
}

fn refused(request: &str, why: &Refusal) -> CommandError {
    CommandError::message(format!("{request}: {}", refusal::text(why)))
}

/// The cluster's name.
pub fn cluster_name(server: &mut Server) -> Result<String, CommandError> {
    match server.ask(Call::Config)? {
        Answer::Config(config) => Ok(config.values.get("ClusterName").cloned().unwrap_or_default()),
        other => Err(CommandError::unexpected(&other)),
    }
}

/// The names of the generic resources that nodes have, in order.
pub fn gres_names(server: &mut Server) -> Result<Vec<String>, CommandError> {
    match server.ask(Call::Cluster)? {
        Answer::Cluster(cluster) => {
            let gres = cluster.nodes.iter().flat_map(|node| &node.config.gres);
            let names: BTreeSet<String> = gres.map(|gres| gres.name.clone()).collect();
            Ok(names.into_iter().collect())
        }
        other => Err(CommandError::unexpected(&other)),
    }
}

/// How times are written, by `SLURM_TIME_FORMAT`.
pub fn time_format() -> TimeFormat<'static> {
    static FORMAT: OnceLock<String> = OnceLock::new();
    let text = FORMAT.get_or_init(|| std::env::var("SLURM_TIME_FORMAT").unwrap_or_default());
    TimeFormat::parse(text)
}

/// The moment of a listing, with its times as the user wants them written.
pub fn moment(now: Timestamp, tz: &TimeZone) -> Moment<'_> {
    Moment::at(now, tz).in_format(time_format())
}

/// The name of a time zone, for a server on another machine; `None` for one that is only a file here.
pub fn zone_name(zone: &TimeZone) -> Option<String> {
    DateTimePrinter::new().time_zone_to_string(zone).ok().filter(|name| !name.is_empty())
}

/// The name of a user of this machine.
pub fn user_name(uid: u32) -> Option<String> {
    User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name)
}

/// Takes users out whom this machine does not know, with a line of error for each.
pub fn drop_unknown_users(command: Command, users: &mut Vec<String>) {
    users.retain(|name| {
        let known = is_known(name);
        if !known {
            eprintln!("{}: error: Invalid user: {name}\n", command.name());
        }
        known
    });
}

/// Whether this machine has a user of that name.
pub fn is_known(user: &str) -> bool {
    User::from_name(user).is_ok_and(|user| user.is_some())
}

/// The name of the calling user as the server knows it; the id, if this machine has no name for it.
pub fn own_user_name() -> String {
    let uid = getuid().as_raw();
    login_user().or_else(|| user_name(uid)).unwrap_or_else(|| uid.to_string())
}

pub fn is_root() -> bool {
    login_user().map_or_else(|| getuid().is_root(), |user| user == "root")
}

/// Whom the server takes the caller for, where that is not the user of this machine: by a login, or by the socket of a pod's agent.
fn login_user() -> Option<String> {
    static USER: OnceLock<Option<String>> = OnceLock::new();
    USER.get_or_init(look_up_login_user).clone()
}

fn look_up_login_user() -> Option<String> {
    let server = match ServerLocation::find().ok()? {
        ServerLocation::Https(server) => server,
        ServerLocation::Socket(_) => return std::env::var(USER_VARIABLE).ok(),
        ServerLocation::Http { .. } => return None,
    };
    let login = login_file::read().ok()??;
    (login.server.address == server.address).then_some(login.user)
}
