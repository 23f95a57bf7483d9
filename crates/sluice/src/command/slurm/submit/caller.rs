//! The process that calls a submitting command: its user, environment, limits and working directory.

use ::slurm::option::invocation::Caller;
use ::slurm::option::{Command, JobOptions, OptionError, ValueContext, script};
use ::slurm::request::{LoginUser, Submitter, wants_login};
use jiff::tz::TimeZone;
use model::os_text;
use model::principal::{Principal, Role};
use model::time::Timestamp;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Gid, Group, Uid, User};
use std::cell::OnceCell;

/// The soft resource limits that a job inherits, by Slurm's names.
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

/// The surroundings of this process. The time zone is looked up only if an option needs it.
#[derive(Default)]
pub struct ProcessSurroundings {
    zone: OnceCell<TimeZone>,
}

impl ValueContext for ProcessSurroundings {
    fn now(&self) -> Timestamp {
        ::server::clock::now()
    }

    fn time_zone(&self) -> &TimeZone {
        self.zone.get_or_init(timezone::local)
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
        std::fs::read_to_string(os_text::to_os(path))
    }
}

/// What the option readers need of this process.
pub fn caller(here: &ProcessSurroundings) -> Caller<'_> {
    Caller {
        variable: &|name| std::env::var_os(name).map(os_text::from_os),
        context: here,
        load: &|path| match path {
            Some(path) => script::load(path),
            None => script::load_from(std::io::stdin().lock()).map_err(|error| {
                OptionError::Failure(vec![format!("standard input cannot be read: {error}")])
            }),
        },
    }
}

/// Everything about this process that goes into a job.
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
        now: ::server::clock::now(),
    }
}

/// By these the server is found from here. A job finds it by the socket of its own node, and needs no token.
const SERVER_VARIABLES: [&str; 3] = ["SLUICE_SERVER", "SLUICE_TOKEN", "SLUICE_CA"];

/// The environment.
pub fn variables() -> Vec<(String, String)> {
    std::env::vars_os()
        .map(|(name, value)| (os_text::from_os(name), os_text::from_os(value)))
        .filter(|(name, _)| !SERVER_VARIABLES.contains(&name.as_str()))
        .collect()
}

/// The owner of the job. Without a name the server takes the user of the connection; with one, root submits for another.
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
        token_limit: None,
    }
}

/// The working directory as the shell shows it, if that is the same folder: symbolic links in the path stay.
fn work_dir() -> String {
    let real = std::env::current_dir().map(|dir| os_text::from_os(dir.into()));
    let real = real.unwrap_or_else(|_| "/".to_owned());
    match std::env::var_os("PWD").map(os_text::from_os) {
        Some(shown) if shown != real && same_place(&shown, &real) => shown,
        _ => real,
    }
}

fn same_place(one: &str, other: &str) -> bool {
    let place = |path: &str| {
        let found = nix::sys::stat::stat(&*os_text::to_os(path));
        found.map(|stat| (stat.st_dev, stat.st_ino))
    };
    one.starts_with('/') && matches!((place(one), place(other)), (Ok(a), Ok(b)) if a == b)
}

fn current_nice() -> i32 {
    // SAFETY: takes and returns integers; for this process itself it cannot fail.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

fn current_umask() -> u32 {
    // The mask can only be read by setting it. No other thread makes files yet.
    let mask = umask(Mode::empty());
    umask(mask);
    mask.bits()
}

fn login() -> LoginUser {
    let Ok(Some(user)) = User::from_uid(Uid::effective()) else { return LoginUser::default() };
    let text = |path: std::path::PathBuf| path.to_string_lossy().into_owned();
    LoginUser { name: user.name, home: text(user.dir), shell: text(user.shell) }
}
