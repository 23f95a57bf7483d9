//! The bounds of what an agent says, besides the size of its frames: a text that is longer, or a list that has more, is cut,
//! with one line for each message.

use model::bounds::{self, Bound};
use model::node::{NodeConfig, NodeFacts, NodeGres};
use wire::forward::SERVER_SOCKETS_MAX;
use wire::link::{PassedFrom, RENEWALS_MAX, ToServer};
use wire::report::ReportEvent;

/// What was cut from one message.
#[derive(Default)]
struct Cuts {
    texts: usize,
    lists: usize,
}

impl Cuts {
    fn text(&mut self, text: &mut String) {
        self.texts += usize::from(bounds::cut(text, bounds::NODE_TEXT_BYTES));
    }

    fn texts<'a>(&mut self, texts: impl IntoIterator<Item = &'a mut String>) {
        texts.into_iter().for_each(|text| self.text(text));
    }

    fn list<T>(&mut self, list: &mut Vec<T>, bound: Bound) {
        self.lists += usize::from(list.len() > bound.most);
        list.truncate(bound.most);
        list.shrink_to_fit();
    }

    /// Leaves nothing of what is no host: it becomes a part of scripts.
    fn host(&mut self, text: &mut String) {
        if !is_host(text) {
            text.clear();
            self.texts += 1;
        }
    }

    fn facts(&mut self, facts: &mut NodeFacts) {
        let NodeFacts { hostname, address, arch, os, version, not_enforced, .. } = facts;
        self.texts([hostname, address, arch, os, version]);
        self.host(address);
        self.list(not_enforced, bounds::NODE_LINES);
        self.texts(not_enforced);
        self.list(&mut facts.gpus, bounds::NODE_DEVICES);
        for gpu in &mut facts.gpus {
            self.texts([&mut gpu.uuid, &mut gpu.model, &mut gpu.pci]);
            self.texts(&mut gpu.lost);
            self.list(&mut gpu.links, bounds::NODE_DEVICES);
        }
    }

    fn gres(&mut self, gres: &mut NodeGres) {
        let NodeGres { name, kind, files, device_names, links, variables, .. } = gres;
        self.text(name);
        self.texts(kind);
        self.list(files, bounds::NODE_DEVICES);
        self.list(device_names, bounds::NODE_DEVICES);
        self.list(links, bounds::NODE_DEVICES);
        self.texts(files.iter_mut().chain(device_names));
        if let Some(variables) = variables {
            self.list(variables, bounds::NODE_DEVICES);
            self.texts(variables);
        }
    }

    fn devices(&mut self, node: &mut NodeConfig) {
        self.list(&mut node.gres, bounds::NODE_GRES_LINES);
        node.gres.iter_mut().for_each(|gres| self.gres(gres));
    }

    fn report(&mut self, event: &mut ReportEvent) {
        match event {
            ReportEvent::LaunchFailed { what, unfit, .. } => {
                self.text(what);
                self.texts(unfit);
            }
            ReportEvent::Unfit { why } => self.text(why),
            ReportEvent::Network(network) => self.list(&mut network.ports, bounds::CONTAINER_PORTS),
            ReportEvent::Started
            | ReportEvent::StepEnded { .. }
            | ReportEvent::ScriptEnded { .. }
            | ReportEvent::Ended(_) => {}
        }
    }

    fn message(&mut self, message: &mut ToServer) {
        match message {
            ToServer::Hello(hello) => {
                self.text(&mut hello.program);
                self.texts(&mut hello.network_stack);
                self.list(&mut hello.nodes, bounds::LIST_ITEMS);
                // One that is cut is no longer what was signed.
                hello.renewals.truncate(RENEWALS_MAX);
                for renewal in &mut hello.renewals {
                    self.texts([&mut renewal.body, &mut renewal.signature]);
                }
                for node in &mut hello.nodes {
                    self.text(&mut node.name);
                    self.facts(&mut node.facts);
                    self.devices(&mut node.detected);
                    if let Some(said) = &mut node.dynamic {
                        self.devices(said);
                        self.list(&mut said.features, bounds::NODE_DEVICES);
                        self.texts(&mut said.features);
                        self.texts([&mut said.name, &mut said.address, &mut said.hostname]);
                        self.host(&mut said.address);
                        self.host(&mut said.hostname);
                        self.texts(&mut said.initial_reason);
                        self.texts(&mut said.topology);
                    }
                    self.list(&mut node.attempts, bounds::LIST_ITEMS);
                    self.texts(&mut node.device_change);
                }
            }
            ToServer::Client(client) => {
                self.list(&mut client.nodes, bounds::LIST_ITEMS);
                self.texts(client.nodes.iter_mut().chain([&mut client.user]));
            }
            ToServer::Ssh(ssh) => {
                self.list(&mut ssh.nodes, bounds::LIST_ITEMS);
                self.texts(ssh.nodes.iter_mut().chain([&mut ssh.login]));
            }
            ToServer::Passed(client) => {
                self.text(&mut client.signature);
                if let PassedFrom::Socket { user, .. } = &mut client.from {
                    self.text(user);
                }
            }
            ToServer::Report(report) => {
                self.text(&mut report.node);
                self.report(&mut report.event);
            }
            ToServer::Heartbeat { nodes } => {
                self.list(nodes, bounds::LIST_ITEMS);
                for (name, facts) in nodes {
                    self.text(name);
                    self.facts(facts);
                }
            }
            ToServer::GpuSeries { nodes, series } => {
                self.list(nodes, bounds::LIST_ITEMS);
                self.texts(nodes);
                self.lists += usize::from(series.hold_to_bounds());
            }
            ToServer::Join(join) => self.texts(&mut join.node),
            ToServer::StepAccepted { node, .. } => self.text(node),
            ToServer::Health { node, failure, .. } => {
                self.text(node);
                self.texts(failure);
            }
            ToServer::OrderRefused { node, why, unfit, .. } => {
                self.texts([node, why]);
                self.texts(unfit);
            }
            ToServer::StreamEnd { error, .. } => self.texts(error),
            ToServer::Measured { used, .. } => {
                self.list(&mut used.steps, bounds::STEPS);
                let steps = used.steps.iter_mut();
                steps.for_each(|step| self.list(&mut step.pids, bounds::LIST_ITEMS));
                self.list(&mut used.load.samples, bounds::USAGE_SAMPLES);
                self.list(&mut used.load.gpus, bounds::NODE_DEVICES);
                let gpus = used.load.gpus.iter_mut();
                gpus.for_each(|gpu| self.list(&mut gpu.readings, bounds::USAGE_SAMPLES));
            }
            ToServer::ServerFound { found, .. } => {
                if let Some(server) = &mut found.server {
                    self.lists += usize::from(server.sockets.len() > SERVER_SOCKETS_MAX);
                    server.sockets.truncate(SERVER_SOCKETS_MAX);
                }
            }
            // A token and a certificate request have a frame of their own size.
            // The size of a frame bounds a certificate request.
            ToServer::Renew { .. } | ToServer::Credit { .. } => {}
        }
    }
}

/// Whether a text can be a host's name or an address, or is empty.
fn is_host(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || ".:-_%".contains(c)) && !text.starts_with('-')
}

/// Holds a message to its bounds. A line for the log says what was cut; `from` is what it calls the agent.
pub fn cut_to_bounds(from: &str, message: &mut ToServer) -> Option<String> {
    let mut cuts = Cuts::default();
    cuts.message(message);
    let Cuts { texts, lists } = cuts;
    let most = bounds::NODE_TEXT_BYTES.most;
    (texts + lists > 0).then(|| {
        format!(
            "a message of {from} was cut: {texts} texts to {most} bytes, {lists} lists to their bounds"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_of_a_node_is_one_or_nothing() {
        let table = [
            ("10.1.2.3", true),
            ("fe80::1%eth0", true),
            ("node-1.lab", true),
            ("", true),
            ("$(reboot)", false),
            ("a b", false),
            ("a;b", false),
            ("-oProxyCommand=x", false),
        ];
        for (said, is_kept) in table {
            let facts = NodeFacts { address: said.to_owned(), ..NodeFacts::default() };
            let mut message = ToServer::Heartbeat { nodes: vec![("n1".into(), facts)] };
            cut_to_bounds("n1", &mut message);
            let ToServer::Heartbeat { nodes } = &message else { panic!("{message:?}") };
            assert_eq!(nodes[0].1.address, if is_kept { said } else { "" }, "{said}");
        }
    }
}
