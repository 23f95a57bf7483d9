//! Requests about attempts that are no orders: usage, logins, streams to steps, logs.

use super::{Agent, AttemptEntry, UPDATES_MAX};
use crate::attempt_key::AttemptKey;
use crate::error::AgentError;
use crate::link::log_reader::LogReader;
use crate::link::stream::FolderGuard;
use crate::login_listener::{self, Login};
use crate::privilege;
use model::id::StepId;
use model::load::LiveUsage;
use std::path::{Path, PathBuf};
use tokio::sync::watch;
use wire::link::ToServer;
use wire::supervisor::ToSupervisor;

impl Agent {
    /// Asks an attempt's supervisor what its steps use. Without a supervisor the answer is empty.
    pub fn measure(&mut self, ask: u64, key: &AttemptKey) {
        let orders = self.attempts.get(key).and_then(|held| held.orders.as_ref());
        let asked =
            orders.is_some_and(|o| o.try_send(ToSupervisor::Measure { request: ask }).is_ok());
        if !asked && self.outgoing.len() < UPDATES_MAX {
            self.outgoing.push(ToServer::Measured { request: ask, used: LiveUsage::default() });
        }
    }

    /// Listens for logins. If this fails, logins are denied and jobs run on.
    pub fn listen_for_logins(&self, state: &Path) {
        if !privilege::is_root() {
            return;
        }
        if let Err(error) = login_listener::listen(state, self.logins_in.clone()) {
            tracing::warn!(%error, "logins cannot be let into jobs");
        }
    }

    /// Replies to a login with the jobs of its user, the newest first.
    pub fn on_login(&self, login: Login) {
        let uid = Some(login.ask.uid);
        let here = self.attempts.iter().filter(|(_, held)| held.uid == uid && !held.has_ended());
        let mut here: Vec<(&AttemptKey, &AttemptEntry)> = here.collect();
        here.sort_unstable_by_key(|(key, _)| std::cmp::Reverse(key.attempt));
        let groups = |(key, held): &(&AttemptKey, &AttemptEntry)| {
            let mut groups = self.nodes.get(&key.node)?.attempt_groups(key.attempt);
            groups.supervisor = held.supervisor;
            Some(groups)
        };
        // The login may have timed out.
        let _ = login.reply.send(here.iter().filter_map(groups).collect());
    }

    /// Tells the supervisor that the client of a step's stream does not come back.
    pub fn on_client_gone(&self, key: &AttemptKey, step: StepId, stream: u32) {
        if let Some(orders) = self.attempts.get(key).and_then(|held| held.orders.as_ref()) {
            // If this is lost, the supervisor waits for the client until its timeout.
            let _ = orders.try_send(ToSupervisor::ClientGone { step, stream });
        }
    }

    /// The socket for streams to an attempt's steps, with a guard that keeps its path valid.
    pub fn step_socket(&self, key: &AttemptKey) -> Result<(PathBuf, FolderGuard), String> {
        let unknown = || format!("attempt {} does not run on node {}", key.attempt, key.node);
        let living = self.attempts.get(key).is_some_and(|held| !held.has_ended());
        let node = self.nodes.get(&key.node).filter(|_| living).ok_or_else(unknown)?;
        let dir = node.spool.open_attempt(key.attempt).map_err(|e| e.to_string())?;
        Ok((dir.steps_path(), Box::new(dir)))
    }

    /// Becomes true when the attempt has ended; true for one that is not here.
    pub fn attempt_end(&self, key: &AttemptKey) -> watch::Receiver<bool> {
        match self.attempts.get(key) {
            Some(held) => held.ended.subscribe(),
            None => watch::channel(true).1,
        }
    }

    /// A reader of an attempt's log; an error text if there is no such attempt.
    pub fn read_log(
        &self,
        stream: u32,
        key: &AttemptKey,
        offset: u64,
        follow: bool,
    ) -> Result<LogReader, String> {
        let unknown = || format!("no attempt {} is on node {}", key.attempt, key.node);
        let node = self.nodes.get(&key.node).ok_or_else(unknown)?;
        let Some(held) = self.attempts.get(key) else {
            let kept = node.spool.kept_log(key.attempt).ok_or_else(unknown)?;
            let failed = |e| AgentError::file("open", "a kept log", e);
            let open = move || kept.try_clone().map(Some).map_err(failed);
            let (_, ended) = watch::channel(true);
            return Ok(LogReader { stream, offset, follow, open: Box::new(open), ended });
        };
        let dir = node.spool.open_attempt(key.attempt).map_err(|e| e.to_string())?;
        Ok(LogReader {
            stream,
            offset,
            follow,
            open: Box::new(move || dir.read_log()),
            ended: held.ended.subscribe(),
        })
    }
}
