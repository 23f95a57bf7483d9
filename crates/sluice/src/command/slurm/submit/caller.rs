//! The caller of a submitting command: what its process has around it, and what it is told when something goes wrong.

use crate::connect::ClientError;
use ::slurm::option::help;
use ::slurm::option::invocation::Caller;
use ::slurm::option::parse::Question;
use ::slurm::option::{Command, JobOptions, OptionError, Surroundings, script};
use ::slurm::request::{LoginUser, Submitter, wants_login};
use ::slurm::words::{note, refusal};
use jiff::tz::TimeZone;
use model::principal::{Principal, Role};
use model::reason::Refusal;
use model::time::Timestamp;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Gid, Group, Uid, User};
use std::cell::OnceCell;
use std::process::ExitCode;

/// The code of a command that the server refused or could not be asked.
pub const FAILURE: u8 = 1;

/// That code, or the one that `SLURM_EXIT_ERROR` asks for.
pub fn failure() -> ExitCode {
    let asked = std::env::var("SLURM_EXIT_ERROR").ok().and_then(|text| text.parse::<i32>().ok());
    ExitCode::from(asked.map_or(FAILURE, |code| code as u8))
}

/// The soft limits that Slurm carries over, by Slurm's names.
const RLIMITS: [(&str, Resource); 10] = [
    ("CPU", Resource::RLIMIT_CPU),
    ("FSIZE", Resource::RLIMIT_FSIZE),
    ("DATA", Resource::RLIMIT_DATA),
    ("STACK", Resource::RLIMIT_STACK),
    ("CORE", Resource::RLIMIT_CORE),
    ("RSS", Resource::RLIMIT_RSS),
    ("NPROC", Resource::RLIMIT_NPROC),
    ("NOFILE", Resource::RLIMIT_NOFILE),
    ("MEMLOCK", Resource::RLIMIT_MEMLOCK),
    ("AS", Resource::RLIMIT_AS),
];

/// This process's own surroundings. The time zone is looked up only where an option needs it.
#[derive(Default)]
pub struct Here {
    zone: OnceCell<TimeZone>,
}

impl Surroundings for Here {
    fn now(&self) -> Timestamp {
        now()
    }

    fn time_zone(&self) -> &TimeZone {
        self.zone.get_or_init(TimeZone::system)
    }

    fn is_root(&self) -> bool {
        Uid::effective().is_root()
    }

    fn user_id(&self, name: &str) -> Option<u32> {
        match name.parse() {
            Ok(number) => Some(number),
            Err(_) => User::from_name(name).ok().flatten().map(|user| user.uid.as_raw()),
        }
    }

    fn group_id(&self, name: &str) -> Option<u32> {
        match name.parse() {
            Ok(number) => Some(number),
            Err(_) => Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw()),
        }
    }

    fn read_file(&self, path: &str) -> std::io::Result<String> {
        std::fs::read_to_string(path)
    }
}

pub fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Timestamp::from_millis(since.map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX)))
}

/// What the option readers need of this process.
pub fn caller(here: &Here) -> Caller<'_> {
    Caller {
        variable: &|name| std::env::var(name).ok(),
        surroundings: here,
        load: &|path| match path {
            Some(path) => script::load(path),
            None => script::load_from(std::io::stdin().lock()).map_err(|error| {
                OptionError::Failure(vec![format!("standard input cannot be read: {error}")])
            }),
        },
    }
}

/// Everything about this process that a job takes along.
pub fn submitter(command: Command, args: &[String], options: &JobOptions) -> Submitter {
    let words = std::iter::once(command.name().to_owned()).chain(args.iter().cloned());
    let login = if wants_login(options) { login() } else { LoginUser::default() };
    Submitter {
        command,
        words: words.collect(),
        owner: owner(options),
        work_dir: work_dir(),
        host: nix::unistd::gethostname()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default(),
        session: nix::unistd::getsid(None).map_or(0, |sid| sid.as_raw() as u32),
        umask: current_umask(),
        nice: current_nice(),
        rlimits: RLIMITS
            .iter()
            .filter_map(|(name, resource)| Some(((*name).to_owned(), getrlimit(*resource).ok()?.0)))
            .collect(),
        variables: variables(),
        login,
        now: now(),
    }
}

/// The environment as text; a variable that is not UTF-8 cannot travel and stays here.
pub fn variables() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Without a name the server takes who the connection says is asking; with one, root asks for another.
fn owner(options: &JobOptions) -> Principal {
    let uid = options.uid.map_or_else(Uid::effective, Uid::from_raw);
    let named = options.uid.and_then(|_| User::from_uid(uid).ok().flatten());
    let gid = named.as_ref().map_or_else(Gid::effective, |user| user.gid);
    Principal {
        name: options
            .uid
            .map(|uid| named.map_or_else(|| uid.to_string(), |u| u.name))
            .unwrap_or_default(),
        uid: uid.as_raw(),
        gid: options.gid.unwrap_or(gid.as_raw()),
        group: String::new(),
        groups: Vec::new(),
        role: Role::User,
    }
}

/// As the shell shows it, where that is the same place: a link in the path stays a link.
fn work_dir() -> String {
    let real = std::env::current_dir().map(|dir| dir.to_string_lossy().into_owned());
    let real = real.unwrap_or_else(|_| "/".to_owned());
    match std::env::var("PWD") {
        Ok(shown) if shown != real && same_place(&shown, &real) => shown,
        _ => real,
    }
}

fn same_place(one: &str, other: &str) -> bool {
    let place = |path: &str| nix::sys::stat::stat(path).map(|stat| (stat.st_dev, stat.st_ino));
    one.starts_with('/') && matches!((place(one), place(other)), (Ok(a), Ok(b)) if a == b)
}

fn current_nice() -> i32 {
    // SAFETY: takes numbers and gives one; of ourselves it cannot fail.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

fn current_umask() -> u32 {
    // It can only be read by setting it; no other thread makes files yet.
    let mask = umask(Mode::empty());
    umask(mask);
    mask.bits()
}

fn login() -> LoginUser {
    let Ok(Some(user)) = User::from_uid(Uid::effective()) else { return LoginUser::default() };
    let text = |path: std::path::PathBuf| path.to_string_lossy().into_owned();
    LoginUser { name: user.name, home: text(user.dir), shell: text(user.shell) }
}

/// A line on standard error under the command's name.
pub fn say(command: Command, line: &str) {
    eprintln!("{}: {line}", command.name());
}

pub fn complain(command: Command, line: &str) {
    eprintln!("{}: error: {line}", command.name());
}

/// An option that is refused: Slurm's words, Slurm's code.
pub fn refuse_option(command: Command, error: &OptionError) -> ExitCode {
    eprint!("{}", error.render(command));
    ExitCode::from(error.exit_code(command) as u8)
}

/// `--help` and its like.
pub fn answer(command: Command, question: Question) -> ExitCode {
    let text = match question {
        Question::Help => help::help(command),
        Question::Usage => help::usage(command),
        Question::Version => help::version(),
    };
    print!("{text}");
    ExitCode::SUCCESS
}

/// A submission that the server refused.
pub fn refused(command: Command, refusal: &Refusal) -> ExitCode {
    if let Some(hint) = refusal::hint(refusal) {
        complain(command, &hint);
    }
    let text = refusal::text(refusal);
    match refusal {
        // Slurm's client knows the names itself and does not get as far as submitting.
        Refusal::UnknownGres(_) => complain(command, &text),
        _ => complain(command, &format!("{}: {text}", command.refusal_prefix())),
    }
    note_refused(command, refusal);
    failure()
}

/// One line more than Slurm's: the constraint that was not met.
pub fn note_refused(command: Command, refusal: &Refusal) {
    if let Some(line) = note::text(refusal) {
        say(command, &format!("note: {line}"));
    }
}

/// A server that could not be asked.
pub fn unreachable(command: Command, error: &ClientError) -> ExitCode {
    complain(command, &format!("{}: {}", command.refusal_prefix(), contact(error)));
    failure()
}

/// Slurm's sentence, which scripts look for, and what is behind it.
pub fn contact(error: &ClientError) -> String {
    match error {
        ClientError::Unreachable { .. } => {
            format!("Unable to contact slurm controller (connect failure): {error}")
        }
        ClientError::Protocol(_) => error.to_string(),
    }
}

/// An answer to another question than was asked: a server of another kind.
pub fn unexpected(command: Command, answer: &wire::client::Answer) -> ExitCode {
    complain(command, &format!("the server's answer was not expected: {answer:?}"));
    failure()
}
