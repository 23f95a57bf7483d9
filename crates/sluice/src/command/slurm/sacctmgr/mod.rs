//! `sacctmgr`: shows and changes accounts, users and QOS.

mod account;
mod association_key;
mod audit;
mod command_line;
mod coordinator;
mod qos;
mod show;
mod user;
mod value;

use super::query::{self, CommandError, Server};
use ::slurm::option::{Command, OptionKey as K, Parsed, help};
use ::slurm::output::sacctmgr::Entity;
use ::slurm::words::refusal;
use command_line::{CommandLine, SacctmgrVerb};
use model::reason::Refusal;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, BufRead};
use std::os::fd::AsFd;
use std::process::ExitCode;
use wire::client::{Answer, Call};
use wire::view::AccountsView;

/// How long the user has to confirm a change.
const DECIDE_SECS: u16 = 30;

pub fn run(args: &[String]) -> ExitCode {
    query::finish(Command::Sacctmgr, act(args))
}

fn act(args: &[String]) -> Result<ExitCode, CommandError> {
    let Some(parsed) = query::options(Command::Sacctmgr, args)? else {
        return Ok(ExitCode::SUCCESS);
    };
    if let [word] = parsed.rest.as_slice()
        && word.eq_ignore_ascii_case("version")
    {
        query::print(&help::version())?;
        return Ok(ExitCode::SUCCESS);
    }
    let line = CommandLine::parse(&parsed.rest)?;
    if line.verb == SacctmgrVerb::Show {
        return match line.entity {
            Entity::Transaction | Entity::Event => audit::run(&line, &parsed),
            _ => show::run(&line, &parsed),
        };
    }
    if parsed.has(K::ReadOnly) {
        return Err(CommandError::message("Can't run this command in readonly mode."));
    }
    let mut books = Books::open(&parsed)?;
    line.check_cluster(&books.view.cluster)?;
    match (line.entity, line.verb) {
        (Entity::Qos, SacctmgrVerb::Add) => qos::add(&mut books, &line),
        (Entity::Qos, SacctmgrVerb::Modify) => qos::modify(&mut books, &line),
        (Entity::Qos, SacctmgrVerb::Delete) => qos::delete(&mut books, &line),
        (Entity::Account, SacctmgrVerb::Add) => account::add(&mut books, &line),
        (Entity::Account, SacctmgrVerb::Modify) => account::modify(&mut books, &line),
        (Entity::Account, SacctmgrVerb::Delete) => account::delete(&mut books, &line),
        (Entity::Coordinator, SacctmgrVerb::Add) => coordinator::add(&mut books, &line),
        (Entity::Coordinator, SacctmgrVerb::Delete) => coordinator::delete(&mut books, &line),
        (Entity::User, SacctmgrVerb::Add) => user::add(&mut books, &line),
        (Entity::User, SacctmgrVerb::Modify) => user::modify(&mut books, &line),
        (Entity::User, SacctmgrVerb::Delete) => user::delete(&mut books, &line),
        // The cluster and its TRES are configured in files. An association is changed through its user or account.
        (
            Entity::Association
            | Entity::Tres
            | Entity::Cluster
            | Entity::Coordinator
            | Entity::Transaction
            | Entity::Event
            | Entity::RunawayJob,
            _,
        )
        | (_, SacctmgrVerb::Show) => Err(CommandError::message(format!(
            "sacctmgr: error: {} of this entity is not supported",
            line.verb_word
        ))),
    }
}

/// The accounts as they are now, and how changes are confirmed and sent.
struct Books {
    server: Server,
    view: AccountsView,
    /// `-i`: changes are not confirmed.
    immediate: bool,
    quiet: bool,
}

impl Books {
    fn open(parsed: &Parsed) -> Result<Self, CommandError> {
        let mut server = Server::find("sacctmgr: error")?;
        let view = load(&mut server)?;
        let (immediate, quiet) = (parsed.has(K::Immediate), parsed.has(K::Quiet));
        Ok(Self { server, view, immediate, quiet })
    }

    fn print_unless_quiet(&self, text: &str) -> Result<(), CommandError> {
        if self.quiet { Ok(()) } else { query::print(text) }
    }

    /// Prints what would change, asks for confirmation, and sends the calls.
    fn commit(&mut self, said: &str, calls: Vec<Call>) -> Result<ExitCode, CommandError> {
        self.print_unless_quiet(said)?;
        if !self.immediate && !agreed()? {
            self.print_unless_quiet(" Changes Discarded\n")?;
            return Ok(ExitCode::SUCCESS);
        }
        for call in calls {
            if let Err(why) = self.server.try_ask(call)? {
                return Err(refused(&why));
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Nothing was selected: prints so on standard output, with exit code 1.
    fn nothing(&self, text: &str) -> Result<ExitCode, CommandError> {
        self.print_unless_quiet(text)?;
        Ok(ExitCode::FAILURE)
    }
}

fn load(server: &mut Server) -> Result<AccountsView, CommandError> {
    match server.ask(Call::Accounts)? {
        Answer::Accounts(view) => Ok(view),
        other => Err(CommandError::unexpected(&other)),
    }
}

fn refused(why: &Refusal) -> CommandError {
    let text = match why {
        Refusal::AccessDenied => format!(
            "sacctmgr: error: Your user doesn't have privilege to perform this action\n \
             Error with request: {}",
            refusal::text(why)
        ),
        Refusal::JobsActive(_) => format!(" Error with request: {}", refusal::text(why)),
        why => format!("sacctmgr: error: {}", refusal::text(why)),
    };
    CommandError::message(text)
}

/// Asks on standard input. Anything but yes is a no, and so is no answer in time.
fn agreed() -> Result<bool, CommandError> {
    query::print(&format!(
        "Would you like to commit changes? (You have {DECIDE_SECS} seconds to decide)\n(N/y): "
    ))?;
    let input = io::stdin();
    let mut waiting = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
    let millis = PollTimeout::from(DECIDE_SECS.saturating_mul(1_000));
    let ready = poll(&mut waiting, millis).map_err(io::Error::from)?;
    let mut answer = String::new();
    if ready > 0 {
        input.lock().read_line(&mut answer)?;
    }
    query::print("\n")?;
    Ok(matches!(answer.trim().chars().next(), Some('y' | 'Y')))
}
