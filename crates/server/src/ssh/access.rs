//! Which job a login means, and whether a key opens it.
//!
//! A login is `ssh NAME@host`: the name of a run, the number of a job (with `.RANK` for another of its nodes), or the id
//! that dstack's client is told (`upstream_id`). None of them is a secret: the key says who comes.

use crate::auth::principal;
use crate::dispatch::launch::internode_ssh;
use crate::http::ssh_keys::settle_held_key;
use crate::logs::log_key::booked_job;
use crate::shared::Shared;
use crate::task_groups::{is_first_group, node_by_rank};
use cluster::authorise::{Act, authorise};
use cluster::rights::role_of;
use cluster::{Job, State};
use dstack::occurrence::run_name;
use model::id::{AttemptId, BlobRef, JobId};
use model::principal::{Principal, Role};
use russh::keys::PublicKey;
use serde::Deserialize;
use std::cmp::Reverse;
use std::sync::MutexGuard;
use tokio::task::block_in_place;

/// Who came in, and where.
#[derive(Debug, Clone)]
pub struct Access {
    pub by: Principal,
    pub job: JobId,
    /// The node's place in the allocation.
    pub rank: u32,
}

/// What a login name says.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Login<'n> {
    Job { job: JobId, rank: u32 },
    Run(&'n str),
}

/// Digits of the parts of an upstream id: the job, the rank, and zeros, so that it is as long as dstack's own.
const JOB_DIGITS: usize = 8;
const UPSTREAM_DIGITS: usize = 32;

const ROOT: &str = "root";

/// The id by which dstack's client names one node of a job.
pub fn upstream_id(job: JobId, rank: u32) -> String {
    format!("{:08x}{rank:08x}{:016x}", job.0, 0)
}

impl<'n> Login<'n> {
    fn parse(name: &'n str) -> Self {
        // dstack's client adds the user inside the container.
        let word = name.split_once('_').map_or(name, |(word, _)| word);
        if let Some((job, rank)) = parse_upstream(word) {
            return Self::Job { job, rank };
        }
        let (job, rank) = name.split_once('.').unwrap_or((name, "0"));
        match (job.parse(), rank.parse()) {
            (Ok(job), Ok(rank)) => Self::Job { job: JobId(job), rank },
            _ => Self::Run(name),
        }
    }
}

fn parse_upstream(word: &str) -> Option<(JobId, u32)> {
    let is_hex = word.len() == UPSTREAM_DIGITS && word.bytes().all(|b| b.is_ascii_hexdigit());
    let part = |from: usize| u32::from_str_radix(word.get(from..from + JOB_DIGITS)?, 16).ok();
    is_hex.then(|| Some((JobId(part(0)?), part(JOB_DIGITS)?))).flatten()
}

/// A job as far as logins need it.
struct Candidate {
    job: JobId,
    rank: u32,
    owner: Principal,
    /// The configuration of a task, which may name a key.
    configuration: Option<BlobRef>,
    /// The attempt that stands for a run of several nodes, whose key its nodes have.
    run_attempt: Option<AttemptId>,
    /// It has left the server's memory: its log is all that is left.
    is_booked: bool,
}

impl Candidate {
    fn of(state: &State, job: &Job, rank: u32) -> Self {
        Self {
            job: job.id,
            rank,
            owner: (*job.spec.owner).clone(),
            configuration: job.spec.launch.configuration.as_deref().copied(),
            run_attempt: internode_ssh::run_attempt(state, job),
            is_booked: false,
        }
    }
}

/// The job that this key opens by this login, if there is one. A name is its owner's alone: where the key opens runs of
/// several owners by one name, or others than the owner have registered it, it opens none of them, and their numbers are to
/// be given. Nor does a key open a run by its name that was registered without a proof: who comes by a name is not to land in
/// the run of one who has taken his key and the name.
pub fn find(shared: &Shared, login: &str, key: &PublicKey) -> Option<Access> {
    block_in_place(|| {
        let login = Login::parse(login);
        let is_name = matches!(login, Login::Run(_));
        let registered = shared.ssh_keys.registered_by(key);
        let found: Vec<Candidate> = match login {
            Login::Job { job, rank } => {
                let of_books = || booked_by_key(shared, job, rank, key, &registered);
                job_of_number(shared, job, rank).or_else(of_books).into_iter().collect()
            }
            Login::Run(name) => {
                runs_of_name(shared, name, &owners_of_key(shared, key, &registered))
            }
        };
        let mut opened = found.into_iter().filter_map(|one| {
            settle_held_key(shared, &one.owner.name);
            let by = who(shared, &one, key, is_name, &registered)?;
            let is_others = |name: &String| *name != by.name;
            let is_unproved = || shared.ssh_keys.is_unproved(&by.name, key);
            if is_name && (registered.iter().any(is_others) || is_unproved()) {
                return None;
            }
            let is_in = may_enter(shared, &by, &one);
            is_in.then_some((one.owner.uid, Access { by, job: one.job, rank: one.rank }))
        });
        let (owner, access) = opened.next()?;
        opened.all(|(other, _)| other == owner).then_some(access)
    })
}

/// The node of a run that the run's own key opens from another of its nodes. No other key does there: who has one comes by the
/// endpoint's port, where the site lets him.
pub fn find_node_of_run(shared: &Shared, login: &str, key: &PublicKey) -> Option<Access> {
    block_in_place(|| {
        let Login::Job { job, rank } = Login::parse(login) else { return None };
        let one = job_of_number(shared, job, rank)?;
        let attempt = one.run_attempt?;
        let by = one.owner.clone();
        let is_in = shared.ssh_keys.is_key_of_attempt(attempt, key) && may_enter(shared, &by, &one);
        is_in.then_some(Access { by, job: one.job, rank: one.rank })
    })
}

/// The users whose runs a key may open by name.
#[derive(Debug, PartialEq, Eq)]
enum Owners {
    All,
    Named(Vec<String>),
}

/// The users whose runs this key may open by name: all of them for root's and an administrator's, else those of the users who registered it, and
/// of the one for whom the server holds it. Known before any job is looked at: anybody may come with some key and some name.
/// `registered`: the users who registered the key.
fn owners_of_key(shared: &Shared, key: &PublicKey, registered: &[String]) -> Owners {
    settle_held_key(shared, ROOT);
    if shared.ssh_keys.is_key_of(ROOT, key) {
        return Owners::All;
    }
    let known = registered.iter().filter_map(|name| principal::of_name(name));
    let known: Vec<Principal> = known.map(principal::with_own_role).collect();
    let users: Vec<String> = {
        let state = shared.read();
        if known.iter().any(|by| role_of(&state, by) == Role::Admin) {
            return Owners::All;
        }
        state.user_jobs.users().map(str::to_owned).collect()
    };
    let held = users.into_iter().filter(|user| shared.ssh_keys.is_held_for(user, key));
    Owners::Named(registered.iter().cloned().chain(held).collect())
}

/// The job of this number, and its node of this rank, of those in memory.
fn job_of_number(shared: &Shared, job: JobId, rank: u32) -> Option<Candidate> {
    let state = shared.read();
    let found = state.jobs.get(&job)?;
    let (found, rank) = node_by_rank(&state, found, rank);
    Some(Candidate::of(&state, found, rank))
}

/// The runs of this name that have not ended, of these owners, the newest first.
fn runs_of_name(shared: &Shared, name: &str, owners: &Owners) -> Vec<Candidate> {
    let state = shared.read();
    let is_meant = |job: &&Job| {
        let spec = &job.spec;
        let is_named = name.starts_with(&*spec.name);
        is_named && !job.has_ended() && run_name(spec.launch.kind, &spec.name, job.id) == name
    };
    let mut found: Vec<&Job> = match owners {
        Owners::All => state.jobs.values().map(|job| &**job).filter(is_meant).collect(),
        Owners::Named(names) => {
            let jobs = state.user_jobs.of(names.iter().map(String::as_str));
            jobs.into_iter().filter_map(|job| state.job(job)).filter(is_meant).collect()
        }
    };
    // The first group of a task has its rank 0.
    found.sort_by_key(|job| (!is_first_group(job), Reverse(job.id)));
    found.into_iter().map(|job| Candidate::of(&state, job, 0)).collect()
}

/// The turn of a login for which the books are read.
enum BooksTurn<'s> {
    Known,
    /// With a key that is nobody's.
    Stranger(#[expect(dead_code)] MutexGuard<'s, ()>),
}

/// The owner of a key is known before the books are read. One that is nobody's may still be that of a run, which its record alone says: for
/// those who come with such a key the books are read one at a time, and `None` is for who comes meanwhile.
fn books_turn<'s>(
    shared: &'s Shared,
    key: &PublicKey,
    registered: &[String],
) -> Option<BooksTurn<'s>> {
    if owners_of_key(shared, key, registered) != Owners::Named(Vec::new()) {
        return Some(BooksTurn::Known);
    }
    shared.volatile.stranger_at_books.try_lock().ok().map(BooksTurn::Stranger)
}

fn booked_by_key(
    shared: &Shared,
    job: JobId,
    rank: u32,
    key: &PublicKey,
    registered: &[String],
) -> Option<Candidate> {
    let _turn = books_turn(shared, key, registered)?;
    booked(shared, job, rank)
}

fn booked(shared: &Shared, job: JobId, rank: u32) -> Option<Candidate> {
    let record = booked_job(shared, job)?;
    let owner = principal::of_name(&record.user).filter(|owner| owner.uid == record.uid)?;
    let (configuration, run_attempt) = (record.configuration, None);
    Some(Candidate { job, rank, owner, configuration, run_attempt, is_booked: true })
}

/// Who proves with this key that they may enter the job: its owner, or root. The key of the run alone opens it by its number,
/// not by a name: dstack's client gives the number. `registered`: the users who registered the key.
fn who(
    shared: &Shared,
    one: &Candidate,
    key: &PublicKey,
    by_name: bool,
    registered: &[String],
) -> Option<Principal> {
    let of_nodes = |attempt| shared.ssh_keys.is_key_of_attempt(attempt, key);
    let is_runs = || is_key_of_run(shared, one, key) || one.run_attempt.is_some_and(of_nodes);
    if shared.ssh_keys.is_key_of(&one.owner.name, key) || (!by_name && is_runs()) {
        return Some(one.owner.clone());
    }
    settle_held_key(shared, ROOT);
    if shared.ssh_keys.is_key_of(ROOT, key) {
        return Some(principal::server_principal());
    }
    let known = |name: &String| principal::of_name(name).map(principal::with_own_role);
    registered.iter().filter_map(known).find(|by| may_enter(shared, by, one))
}

/// Whether the run was applied with this key: `dstack apply` with an identity file.
fn is_key_of_run(shared: &Shared, one: &Candidate, key: &PublicKey) -> bool {
    #[derive(Deserialize)]
    struct RunKey {
        ssh_key_pub: Option<String>,
    }
    let text = one.configuration.as_ref().and_then(|blob| shared.blob_text(blob).ok());
    let spec = text.and_then(|text| serde_json::from_str::<RunKey>(&text).ok());
    let line = spec.and_then(|spec| spec.ssh_key_pub);
    let known = line.and_then(|line| crate::shared::ssh_keys::read_line(&line).ok());
    known.is_some_and(|known| known.key_data() == key.key_data())
        // The server's own key is in the specification for the client to know it by. It counts as long as it is held.
        && !shared.ssh_keys.was_held_for(&one.owner.name, key)
        && !shared.ssh_keys.was_removed_by(&one.owner.name, key)
}

/// Only the job's owner and administrators, and none whom an administrator has shut out.
fn may_enter(shared: &Shared, by: &Principal, one: &Candidate) -> bool {
    let state = shared.read();
    if state.users.get(&by.name).is_some_and(|known| !known.active) {
        return false;
    }
    let act = match state.jobs.get(&one.job) {
        Some(job) => Act::ActAsOwner(job),
        None if one.is_booked => Act::ReadTextsOf(one.owner.uid),
        None => return false,
    };
    authorise(&state, by, act).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::ssh_keys::{Registration, read_line};
    use crate::testing::TestServer;
    use model::time::Timestamp;

    const KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti a@b";

    /// A login with an unknown key once had all jobs searched for the name that it gave.
    #[tokio::test(flavor = "multi_thread")]
    async fn by_a_name_only_runs_of_those_are_looked_at_whose_key_it_is() {
        let server = TestServer::start().await;
        server.submit("name: train").await.expect("a job of ada");
        let (shared, keys) = (&server.shared, &server.shared.ssh_keys);
        let owners = |key: &PublicKey| owners_of_key(shared, key, &keys.registered_by(key));
        let found = |key: &PublicKey| runs_of_name(shared, "train", &owners(key)).len();
        let held = |user: &str| read_line(&keys.held_public_line(user)).expect("a key");
        let named =
            |names: &[&str]| Owners::Named(names.iter().map(|name| (*name).to_owned()).collect());
        let key = read_line(KEY).expect("a key");
        assert_eq!((owners(&key), found(&key)), (named(&[]), 0), "a stranger's");
        keys.add("bob", KEY, Registration::Proved, &[]).expect("registered");
        assert_eq!((owners(&key), found(&key)), (named(&["bob"]), 0));
        assert_eq!(owners(&held("bob")), named(&[]), "he has no job");
        let adas = held("ada");
        assert_eq!((owners(&adas), found(&adas)), (named(&["ada"]), 1));
        assert_eq!((owners(&held("root")), found(&held("root"))), (Owners::All, 1));
        keys.renew("ada", Timestamp(5)).expect("renewed");
        assert_eq!((owners(&adas), found(&adas)), (named(&[]), 0), "the key of before");
        assert_eq!(found(&held("ada")), 1);
    }

    /// A login with an unknown key once had the books read for any number that it gave.
    #[tokio::test(flavor = "multi_thread")]
    async fn by_a_number_the_books_are_read_for_one_unknown_key_at_a_time() {
        let server = TestServer::start().await;
        server.submit("name: train").await.expect("a job of ada");
        let (shared, keys) = (&server.shared, &server.shared.ssh_keys);
        let has_turn =
            |key: &PublicKey| books_turn(shared, key, &keys.registered_by(key)).is_some();
        let stranger = read_line(KEY).expect("a key");
        let turn = books_turn(shared, &stranger, &[]);
        assert!(turn.is_some() && !has_turn(&stranger), "another is at it");
        for user in ["ada", "root"] {
            assert!(has_turn(&read_line(&keys.held_public_line(user)).expect("a key")), "{user}");
        }
        drop(turn);
        assert!(has_turn(&stranger));
        let _turn = books_turn(shared, &stranger, &[]);
        keys.add("bob", KEY, Registration::Proved, &[]).expect("registered");
        assert!(has_turn(&stranger), "it is bob's now");
    }

    #[test]
    fn login_names_are_runs_jobs_with_a_rank_and_upstream_ids() {
        let job = |job, rank| Login::Job { job: JobId(job), rank };
        let upstream = upstream_id(JobId(77), 3);
        assert_eq!(upstream.len(), UPSTREAM_DIGITS);
        for (name, expected) in [
            ("12", job(12, 0)),
            ("12.1", job(12, 1)),
            ("train", Login::Run("train")),
            ("train-12", Login::Run("train-12")),
            ("12.x", Login::Run("12.x")),
            ("my_run", Login::Run("my_run")),
            (&upstream, job(77, 3)),
            (&format!("{upstream}_root"), job(77, 3)),
            ("99999999999", Login::Run("99999999999")),
            ("", Login::Run("")),
            ("../../etc", Login::Run("../../etc")),
        ] {
            assert_eq!(Login::parse(name), expected, "{name}");
        }
    }
}
