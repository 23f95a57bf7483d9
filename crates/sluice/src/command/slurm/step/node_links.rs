//! Links to the nodes of a step. Nodes dial `srun`; where they cannot, the bytes go through the server.

use super::link::{Link, Peer};
use super::listener::StepListener;
use super::server_stream::StreamReply;
use super::task_ends::TaskEnd;
use super::{IndexSet, Step, print_error};
use crate::client::UpgradedStream;
use ::slurm::words::refusal;
use model::reason::Refusal;
use std::io;
use std::time::{Duration, Instant};

/// A node that has not dialled by then is reached through the server.
const STREAM_AFTER: Duration = Duration::from_secs(1);
/// The pause between two requests for a stream, and how often a node may refuse one before it is given up.
const ASK_PAUSE: Duration = Duration::from_secs(1);
const REFUSALS_MAX: u32 = 3;
/// A stream that is asked for at once may come to the node before the step's order: it is asked for again so often,
/// after a pause that doubles each time.
const EARLY_REFUSALS_MAX: u32 = 6;
const EARLY_PAUSE: Duration = Duration::from_millis(10);
/// How long a broken stream is asked for again. A server or agent that restarts needs less.
const RESUME_TIMEOUT: Duration = Duration::from_secs(60);
/// Connections that have not proven the key yet. More wait in the listener's backlog.
const UNAUTHENTICATED_MAX: usize = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodeLink {
    /// It is expected to dial, since this time.
    Expected(Instant),
    /// A stream through the server was asked for.
    Asked,
    Linked,
    Lost,
}

/// One node of the step.
pub(super) struct StepNode {
    name: String,
    tasks: Vec<u32>,
    link: NodeLink,
    /// Refusals while its order may be on the way, and those after.
    early_refusals: u32,
    refusals: u32,
    /// When its stream broke.
    broken: Option<Instant>,
}

impl Step {
    /// Sets the nodes that run the step. Streams are asked for at once by `sattach`, and by an `srun` that
    /// nodes do not dial; others wait to be dialled first.
    pub(super) fn expect_nodes(&mut self, layout: &[(String, Vec<u32>)]) {
        if !self.nodes.is_empty() {
            return;
        }
        let now = Instant::now();
        let is_dialled = self.listener.as_ref().is_some_and(|listener| listener.is_dialled());
        let since = if is_dialled { now } else { now - STREAM_AFTER };
        let node = |(name, tasks): &(String, Vec<u32>)| StepNode {
            name: name.clone(),
            tasks: tasks.clone(),
            link: NodeLink::Expected(since),
            early_refusals: 0,
            refusals: 0,
            broken: None,
        };
        self.nodes = layout.iter().map(node).collect();
        let linked: Vec<Peer> =
            self.links.iter().filter_map(|(link, _)| link.peer.clone()).collect();
        linked.iter().for_each(|peer| self.mark_linked(peer));
    }

    /// Ends the tasks of nodes whose link broke before it was known which tasks they have.
    pub(super) fn lose_tasks_of_broken_links(&mut self) -> io::Result<()> {
        for index in 0..self.links.len() {
            if self.links[index].0.is_broken() {
                self.lose_tasks(index)?;
            }
        }
        Ok(())
    }

    pub(super) fn on_listener(&mut self) {
        let mut unauthenticated = self.unauthenticated();
        while unauthenticated < UNAUTHENTICATED_MAX
            && let Some((stream, channel)) = self.listener.as_ref().and_then(StepListener::accept)
        {
            self.links.push((Link::new(stream, channel), IndexSet::new()));
            unauthenticated += 1;
        }
    }

    /// Whether further connections may be accepted.
    pub(super) fn accepts(&self) -> bool {
        !self.awaits_allocation_lines && self.unauthenticated() < UNAUTHENTICATED_MAX
    }

    pub(super) fn unauthenticated(&self) -> usize {
        self.links.iter().filter(|(link, _)| link.is_open() && link.peer.is_none()).count()
    }

    /// Whether a node is still expected to dial.
    pub(super) fn expects(&self) -> bool {
        self.nodes.iter().any(|node| matches!(node.link, NodeLink::Expected(_)))
    }

    /// The step's tasks on a node, as far as the layout is known.
    pub(super) fn tasks_on(&self, peer: &Peer) -> impl Iterator<Item = u32> {
        let node = self.nodes.iter().find(|node| node.name == peer.node);
        node.into_iter().flat_map(|node| node.tasks.iter().copied())
    }

    pub(super) fn all_linked(&self) -> bool {
        let linked = |node: &StepNode| node.link == NodeLink::Linked;
        !self.nodes.is_empty() && self.nodes.iter().all(linked)
    }

    pub(super) fn mark_linked(&mut self, peer: &Peer) {
        if let Some(node) = self.nodes.iter_mut().find(|node| node.name == peer.node) {
            node.link = NodeLink::Linked;
            node.broken = None;
            node.refusals = 0;
        }
    }

    pub(super) fn ask_for_streams(&mut self) -> io::Result<()> {
        for node in &mut self.nodes {
            if let NodeLink::Expected(since) = node.link
                && since.elapsed() >= STREAM_AFTER
            {
                node.link = NodeLink::Asked;
                self.streams.open(&node.name, 0, Duration::ZERO)?;
            }
        }
        Ok(())
    }

    pub(super) fn on_streams(&mut self) -> io::Result<()> {
        while let Some((node, opened)) = self.streams.take() {
            match opened {
                StreamReply::Connected(opened) => self.on_stream(&node, opened)?,
                // The node's agent is not connected now.
                StreamReply::Refused(Refusal::Other(_)) | StreamReply::Unreachable => {
                    self.ask_again(&node)?;
                }
                StreamReply::Refused(why) => self.give_up_node(&node, &refusal::text(&why))?,
            }
        }
        Ok(())
    }

    fn on_stream(&mut self, node: &str, opened: UpgradedStream) -> io::Result<()> {
        let known = |peer: &Peer| peer.node == node;
        let heard = |link: &Link| link.peer.as_ref().is_some_and(known);
        let of_node = self.links.iter().position(|(link, _)| heard(link));
        let index = match of_node {
            Some(index) if self.links[index].0.may_resume() => {
                self.links[index].0.resume(opened);
                index
            }
            // The node has dialled in the meantime.
            Some(_) => return Ok(()),
            None => {
                self.links.push((Link::by_stream(opened, node), IndexSet::new()));
                self.links.len() - 1
            }
        };
        // `poll` does not report what arrived together with the response.
        self.on_link(index, true)
    }

    /// A stream closed before its step was over. It is asked for again unless the node refuses too often.
    pub(super) fn on_stream_closed(&mut self, index: usize) -> io::Result<()> {
        let (link, _) = &mut self.links[index];
        let Some(name) = link.asked_for.clone() else { return Ok(()) };
        let Some((why, again)) = link.refused.take() else { return self.ask_again(&name) };
        let Some(node) = self.nodes.iter_mut().find(|node| node.name == name) else {
            return Ok(());
        };
        if node.link == NodeLink::Linked && node.broken.is_none() {
            return Ok(());
        }
        if again && node.link == NodeLink::Asked && node.early_refusals < EARLY_REFUSALS_MAX {
            let pause = EARLY_PAUSE * 2_u32.pow(node.early_refusals);
            node.early_refusals += 1;
            return self.streams.open(&name, 0, pause);
        }
        node.refusals += 1;
        let refusals = node.refusals;
        if refusals > REFUSALS_MAX && !again {
            return self.give_up_node(&name, &why);
        }
        if refusals == REFUSALS_MAX
            && let Some(launch) = &self.launch
        {
            // The node never got the order: the server that was to send it may have been restarted.
            self.streams.launch_again(launch)?;
        }
        self.ask_again(&name)
    }

    fn ask_again(&mut self, name: &str) -> io::Result<()> {
        let received = self.links.iter().find_map(|(link, _)| {
            let heard = link.peer.as_ref().is_some_and(|peer| peer.node == name);
            (heard && link.may_resume()).then(|| link.received())
        });
        let Some(node) = self.nodes.iter_mut().find(|node| node.name == name) else {
            return Ok(());
        };
        let broken = *node.broken.get_or_insert_with(Instant::now);
        // Before the tasks have started there is no timeout: the server says when the job has ended.
        if received.is_some() && broken.elapsed() > RESUME_TIMEOUT {
            return self.give_up_node(name, "the way to the node is lost");
        }
        self.streams.open(name, received.unwrap_or(0), ASK_PAUSE)
    }

    /// Gives up a node: its tasks that have not ended are lost.
    fn give_up_node(&mut self, name: &str, why: &str) -> io::Result<()> {
        let Some(node) = self.nodes.iter_mut().find(|node| node.name == name) else {
            return Ok(());
        };
        node.link = NodeLink::Lost;
        let tasks: Vec<u32> = node.tasks.iter().copied().filter(|t| !self.ends.has(*t)).collect();
        let peer = Peer { node: name.to_owned(), node_index: 0 };
        let mine = |link: &Link| link.asked_for.as_deref() == Some(name);
        for (link, _) in self.links.iter_mut().filter(|(link, _)| mine(link)) {
            link.gone = true;
            link.close();
        }
        if tasks.is_empty() {
            return Ok(());
        }
        print_error(self.command, &format!("{name}: {why}"));
        for task in tasks {
            self.end(&peer, task, TaskEnd::Lost)?;
        }
        self.report_task_ends();
        Ok(())
    }
}
