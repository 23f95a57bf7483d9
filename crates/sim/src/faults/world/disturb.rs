//! The faults of a history.

use super::{Happening, World};
use crate::faults::checks::Checked;
use crate::faults::disks::DiskFault;
use crate::faults::site;
use model::id::AttemptId;

/// How far a server's clock may be off, milliseconds. Orders are good for two minutes: one that jumps further makes agents refuse
/// them until they connect again.
const SERVER_CLOCK_MAX_MS: i64 = 45_000;

/// How far the clock of a node jumps at a time, milliseconds.
const NODE_CLOCK_MS: i64 = 600_000;

impl World {
    pub(super) fn disturb(&mut self) -> Checked {
        if self.is_calm {
            return Ok(());
        }
        let pause = self.chance.millis(2_000, 30_000);
        self.after(pause, Happening::Fault);
        if self.awaits_its_kill() {
            return Ok(());
        }
        self.counts.faults += 1;
        if self.disks.database.is_some() && self.chance.one_in(6) {
            self.freeze_server();
            return Ok(());
        }
        let node = self.chance.pick(&site::NODES).copied().unwrap_or(site::NODES[0]);
        match self.chance.below(17) {
            0..=3 => {
                let fault = DiskFault::any(&mut self.chance);
                self.trace.note(|| format!("    {fault:?}"));
                self.disks.arm(fault);
            }
            4 => self.stop_server(None),
            5 => {
                let seed = self.chance.draw();
                self.stop_server(Some(seed));
            }
            6 | 7 => {
                let is_lossy = self.chance.one_in(2);
                let link = self.agents.get(node).and_then(|agent| agent.link);
                self.trace.note(|| format!("    the link of {node} breaks"));
                self.hang_up(node, link, is_lossy);
            }
            8 => {
                let link = self.agents.get(node).and_then(|agent| agent.link);
                self.trace.note(|| format!("    the agent of {node} stops"));
                if let Some(agent) = self.agents.get_mut(node) {
                    agent.stop();
                }
                self.hang_up(node, link, false);
                let delay = self.chance.millis(500, 15_000);
                self.after(delay, Happening::AgentStart { node: node.to_owned() });
            }
            9 => {
                let link = self.agents.get(node).and_then(|agent| agent.link);
                self.trace.note(|| format!("    {node} loses its power"));
                if let Some(agent) = self.agents.get_mut(node) {
                    agent.power_off();
                }
                self.hang_up(node, link, true);
                let delay = self.chance.millis(5_000, 120_000);
                self.after(delay, Happening::AgentStart { node: node.to_owned() });
            }
            10 => return self.kill_supervisor(node),
            11 => {
                let ahead = self.server_clock_ms + self.chance.millis(0, 30_000);
                self.server_clock_ms = ahead.min(SERVER_CLOCK_MAX_MS);
                self.trace.note(|| "    the server's clock jumps".to_owned());
            }
            12 => {
                let jump = self.chance.millis(-NODE_CLOCK_MS, NODE_CLOCK_MS);
                self.trace.note(|| format!("    the clock of {node} jumps by {jump} ms"));
                if let Some(agent) = self.agents.get_mut(node) {
                    agent.clock_ms += jump;
                }
            }
            13 if self.disks.database.is_none() => {
                self.trace.note(|| "    the server's disk is full".to_owned());
                self.disks.fill();
                let delay = self.chance.millis(1_000, 30_000);
                self.after(delay, Happening::DiskHasRoom);
            }
            _ => self.partition(node),
        }
        Ok(())
    }

    /// Kills the server, or cuts its power. Its clock may be set back before it starts again.
    fn stop_server(&mut self, power_cut: Option<u64>) {
        self.kill_server(power_cut);
        if self.chance.one_in(3) {
            let behind = self.server_clock_ms - self.chance.millis(0, 60_000);
            self.server_clock_ms = behind.max(-SERVER_CLOCK_MAX_MS);
        }
    }

    fn partition(&mut self, node: &str) {
        let Some(agent) = self.agents.get_mut(node).filter(|agent| !agent.is_partitioned) else {
            return;
        };
        agent.is_partitioned = true;
        let link = agent.link;
        self.trace.note(|| format!("    {node} is cut off"));
        self.hang_up(node, link, true);
        let delay = self.chance.millis(3_000, 150_000);
        self.after(delay, Happening::PartitionHealed { node: node.to_owned() });
    }

    /// A supervisor is killed. Its agent, if it runs, clears what is left and says so.
    fn kill_supervisor(&mut self, node: &str) -> Checked {
        let Some(agent) = self.agents.get_mut(node) else { return Ok(()) };
        let alive: Vec<AttemptId> = agent
            .attempts
            .iter()
            .filter(|(_, supervisor)| supervisor.is_alive())
            .map(|(attempt, _)| *attempt)
            .collect();
        let Some(attempt) = self.chance.pick(&alive).copied() else { return Ok(()) };
        self.trace.note(|| format!("    the supervisor of {attempt} on {node} is killed"));
        let at = agent.moment(self.now);
        let is_running = agent.is_running;
        if let Some(supervisor) = agent.attempts.get_mut(&attempt) {
            supervisor.kill();
            if is_running {
                supervisor.note_loss(at);
            }
        }
        agent.collect(attempt);
        self.advance_attempts(node)
    }
}
