//! Commands about nodes that join, stay and leave: spending a join token, renewing a certificate, joining again, and removal.

use crate::authorise::{Act, authorise};
use crate::command::{Context, Decision, JoinAttempt, Reply};
use crate::event::Event;
use crate::membership::{
    JOIN_REPEAT_LIFE, JOIN_REPEATS_MAX, JoinGroup, JoinMethod, JoinRecord, RecentJoin,
};
use crate::state::State;
use crate::token::JoinToken;
use model::dynamic_node::FutureMachine;
use model::hostlist;
use model::node::{AdminState, NodeConfig};
use model::reason::Refusal;
use model::time::Timestamp;
use std::time::Duration;

/// How long a node may take to join again once an administrator has said so.
const REJOIN_LIFE: Duration = Duration::from_secs(24 * 3600);

impl State {
    /// A join token for named nodes works once; one for a pattern, for each of its nodes that has no certificate, as often as
    /// it says. Neither works after its end. Whoever has the token needs no other right. The same request is answered the same
    /// for a while: the answer may have been lost with the server.
    pub(super) fn decide_join(
        &self,
        join: &JoinAttempt,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        let unknown = || Refusal::Other("the join token is wrong, was used, or has expired".into());
        if let Some((recent, method)) = self.repeated_join(join, context.now) {
            return Ok(joined(join, recent.nodes.clone(), method, true, context));
        }
        let token = self.tokens.get(&join.hash).ok_or_else(unknown)?;
        let mut events = Vec::new();
        let (nodes, method) = match &token.group {
            Some(group) => {
                let (node, brought) = self.fitting_node(group, token, join, context)?;
                events.extend(brought);
                if join.future.is_some() {
                    let node = node.clone();
                    events.push(Event::NodeAdmin { node, admin: None, reason: None });
                }
                (vec![node], JoinMethod::Group)
            }
            None if join.future.is_some() => {
                let why = "a machine that is any FUTURE node joins with the file of a pattern";
                return Err(Refusal::Other(why.into()));
            }
            None if token.expires <= context.now => return Err(unknown()),
            None => {
                let is_host = token.nodes.iter().any(|node| self.fleet_host(node).is_some());
                let method = if is_host { JoinMethod::Fleet } else { JoinMethod::File };
                (token.nodes.clone(), method)
            }
        };
        let decision = joined(join, nodes, method, false, context);
        events.extend(decision.events);
        Ok(Decision { events, reply: decision.reply })
    }

    /// The join that this attempt repeats, and how its nodes joined: the same certificate request, so the same key, with the
    /// same token. It is void once the nodes have another certificate or none, or the token of its group was revoked.
    fn repeated_join(
        &self,
        join: &JoinAttempt,
        now: Timestamp,
    ) -> Option<(&RecentJoin, JoinMethod)> {
        let recent = self.recent_joins.get(&join.request)?;
        let is_current = |node: &String| self.agents.get(node) == Some(&recent.fingerprint);
        let is_good = recent.token == join.hash
            && recent.at + JOIN_REPEAT_LIFE > now
            && recent.repeats < JOIN_REPEATS_MAX
            && recent.nodes.iter().all(is_current);
        let first = recent.nodes.first()?;
        let method = self.joins.get(first)?.method;
        // Which node a machine became that wanted to be a future one, it was to be told by the answer.
        let is_named = join.future.is_some() || join.node.as_ref() == Some(first);
        let is_same_member = || self.tokens.contains_key(&join.hash) && is_named;
        (is_good && (method != JoinMethod::Group || is_same_member())).then_some((recent, method))
    }

    /// The node that joins with the token of a group, if it may, and the event that makes it one if it was none.
    fn fitting_node(
        &self,
        group: &JoinGroup,
        token: &JoinToken,
        join: &JoinAttempt,
        context: &Context,
    ) -> Result<(String, Option<Event>), Refusal> {
        let refused = |why: String| Err(Refusal::Other(why));
        let pattern = &group.pattern;
        let chosen = match &join.future {
            Some(machine) => Some(self.future_node(pattern, machine, context)?),
            None => join.node.clone(),
        };
        let Some(node) = &chosen else {
            return refused(format!(
                "the join file is for {pattern}: the agent must say which node it is"
            ));
        };
        let fits = hostlist::contains(pattern, node);
        if token.expires <= context.now {
            return refused(format!("the join file for {pattern} has expired: make another"));
        }
        if !fits {
            return refused(format!(
                "node {node} does not fit {pattern}, which the join file is for"
            ));
        }
        let is_known = self.has_machine(node);
        if !is_known && !join.dynamic {
            return refused(format!("node {node} is not in the configuration"));
        }
        if !is_known && !group.dynamic {
            return refused(format!(
                "node {node} is not in the configuration, and the join file for {pattern} makes no nodes: one that does is made with `sluice token node --dynamic`"
            ));
        }
        if is_known && join.dynamic && !self.dynamic_nodes.contains_key(node) {
            return refused(format!(
                "node {node} is in the configuration: its agent is started without --dynamic"
            ));
        }
        if self.fleet_host(node).is_some() {
            return refused(format!("node {node} is a host of a fleet, which the server installs"));
        }
        let may_again = self.rejoins.get(node).is_some_and(|until| *until > context.now);
        if self.has_live_certificate(node, context.now) && !may_again {
            return refused(format!(
                "node {node} has joined already: if this is the same machine, an administrator says `sluice node rejoin {node}`"
            ));
        }
        if self.shut_out.contains(node) && !may_again {
            return refused(format!(
                "node {node} was removed: an administrator lets it join again by `sluice node rejoin {node}`"
            ));
        }
        if group.used >= group.count {
            let count = group.count;
            return refused(format!(
                "the join file for {pattern} is used up: it was good for {count} joins"
            ));
        }
        let brought = if is_known { None } else { Some(self.node_brought(node, context)?) };
        Ok((node.clone(), brought))
    }

    /// The first FUTURE node of a pattern that this machine is like, and that no other has become.
    fn future_node(
        &self,
        pattern: &str,
        machine: &FutureMachine,
        context: &Context,
    ) -> Result<String, Refusal> {
        let is_free = |name: &str| {
            hostlist::contains(pattern, name)
                && !self.has_live_certificate(name, context.now)
                && !self.shut_out.contains(name)
        };
        let mut future =
            self.nodes.iter().filter(|(_, node)| node.admin == Some(AdminState::Future));
        let found = future.find(|(name, node)| machine.is_like(&node.config) && is_free(name));
        found.map(|(name, _)| name.clone()).ok_or_else(|| {
            let NodeConfig { cpus, sockets, cores_per_socket, threads_per_core, memory, .. } =
                &machine.detected;
            Refusal::Other(format!(
                "no FUTURE node of {pattern} is like this machine: CPUs={cpus} Sockets={sockets} \
                 CoresPerSocket={cores_per_socket} ThreadsPerCore={threads_per_core} RealMemory={}",
                memory.mib()
            ))
        })
    }

    /// A new certificate for an agent that has proven the one it has. Both are good until the next renewal.
    pub(super) fn decide_renew_certificate(
        &self,
        nodes: &[String],
        former: &str,
        fingerprint: &str,
        end: Timestamp,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        authorise(self, &context.by, Act::Administer)?;
        let own: Vec<String> =
            nodes.iter().filter(|node| self.speaks_for(node, former)).cloned().collect();
        if own.is_empty() {
            return Err(Refusal::Other("this certificate speaks for no node any more".into()));
        }
        Ok(vec![Event::CertificateRenewed {
            nodes: own,
            former: former.to_owned(),
            fingerprint: fingerprint.to_owned(),
            end,
            at: context.now,
        }]
        .into())
    }

    /// The node may join once more, with any join file that fits it.
    pub(super) fn decide_rejoin_node(
        &self,
        node: &str,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        authorise(self, &context.by, Act::Administer)?;
        if !self.has_machine(node) && !self.shut_out.contains(node) {
            return Err(Refusal::UnknownNode(node.to_owned()));
        }
        self.check_no_fleet_host(node)?;
        if !self.agents.contains_key(node) && !self.shut_out.contains(node) {
            return Err(Refusal::Other(format!(
                "node {node} has not joined: it may join at any time"
            )));
        }
        let until = context.now + REJOIN_LIFE;
        Ok(vec![Event::RejoinAllowed { node: node.to_owned(), until }].into())
    }

    /// The node's certificate is void from now on, and so are join files for it alone.
    pub(super) fn decide_remove_agent(
        &self,
        node: &str,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        authorise(self, &context.by, Act::Administer)?;
        self.check_no_fleet_host(node)?;
        if !self.has_machine(node) && !self.agents.contains_key(node) {
            return Err(Refusal::UnknownNode(node.to_owned()));
        }
        if !self.agents.contains_key(node) {
            return Err(Refusal::Other(format!("node {node} has not joined")));
        }
        let mut events = self.void_join_tokens(node);
        events.push(Event::AgentRemoved { node: node.to_owned() });
        Ok(events.into())
    }

    /// Removes the join tokens that name this node: they would make their holder the agent of whoever has the name next.
    pub(super) fn void_join_tokens(&self, node: &str) -> Vec<Event> {
        let of_node =
            self.tokens.iter().filter(|(_, token)| token.nodes.iter().any(|of| of == node));
        of_node.map(|(hash, _)| Event::JoinTokenRemoved { hash: hash.clone() }).collect()
    }

    fn check_no_fleet_host(&self, node: &str) -> Result<(), Refusal> {
        match self.fleet_host(node) {
            Some((fleet, number, _)) => Err(Refusal::Other(format!(
                "node {node} is a host of fleet {0}: sluice fleet delete {0} -i {number}",
                fleet.name
            ))),
            None => Ok(()),
        }
    }
}

/// The agent has joined for these nodes.
fn joined(
    join: &JoinAttempt,
    nodes: Vec<String>,
    method: JoinMethod,
    repeated: bool,
    context: &Context,
) -> Decision {
    let record = JoinRecord {
        at: context.now,
        method,
        token: JoinToken::shown_name(&join.hash),
        certificate_end: join.certificate_end,
        former: None,
        future: join.future.is_some(),
        former_attempts: Vec::new(),
    };
    let event = Event::TokenUsed {
        hash: join.hash.clone(),
        nodes: nodes.clone(),
        fingerprint: join.fingerprint.clone(),
        record: Some(record),
        request: join.request.clone(),
        repeated,
    };
    Decision { events: vec![event], reply: Reply::TokenNodes(nodes) }
}
