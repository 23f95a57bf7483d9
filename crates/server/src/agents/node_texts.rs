//! Holds what nodes say to its bounds: a longer text is cut with a mark, a longer list loses its end, and both are logged.

use model::bounds::{self, Bound};
use model::node::{NodeFacts, NodeGres};
use wire::link::NodeHello;

/// Cuts texts that are longer than a node's text may be.
pub fn cut<'a>(node: &str, texts: impl IntoIterator<Item = &'a mut String>) {
    for text in texts {
        let length = text.len();
        if bounds::cut(text, bounds::NODE_TEXT_BYTES) {
            log(node, "text", length, bounds::NODE_TEXT_BYTES);
        }
    }
}

fn shorten<T>(node: &str, items: &mut Vec<T>) {
    let length = items.len();
    if length > bounds::NODE_LIST_ITEMS.most {
        items.truncate(bounds::NODE_LIST_ITEMS.most);
        log(node, "list", length, bounds::NODE_LIST_ITEMS);
    }
}

fn log(node: &str, what: &str, length: usize, bound: Bound) {
    let (unit, most) = (bound.unit.word(), bound.most);
    tracing::warn!("a {what} of {length} {unit} from {node} was cut to {most}");
}

pub fn cut_facts(node: &str, facts: &mut NodeFacts) {
    let NodeFacts { hostname, address, arch, os, version, not_enforced, .. } = facts;
    cut(node, [hostname, address, arch, os, version]);
    shorten(node, not_enforced);
    cut(node, not_enforced);
}

fn cut_gres(node: &str, gres: &mut NodeGres) {
    cut(node, [&mut gres.name].into_iter().chain(&mut gres.kind));
    let lists = [&mut gres.files, &mut gres.device_names].into_iter().chain(&mut gres.variables);
    for list in lists {
        shorten(node, list);
        cut(node, list);
    }
    shorten(node, &mut gres.links);
}

/// What the server keeps of a hello: facts, devices, and the attempts in the spool.
pub fn cut_hello(hello: &mut NodeHello) {
    let node = hello.name.clone();
    cut_facts(&node, &mut hello.facts);
    shorten(&node, &mut hello.detected.gres);
    hello.detected.gres.iter_mut().for_each(|gres| cut_gres(&node, gres));
    shorten(&node, &mut hello.attempts);
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::amount::Bytes;
    use model::id::{AttemptId, JobId};
    use model::node::NodeConfig;
    use wire::link::SpooledAttempt;

    #[test]
    fn everything_that_is_kept_of_a_hello_is_cut() {
        let long = || "x".repeat(1 << 20);
        let (texts, items) = (vec![long(); 3], 2 * bounds::NODE_LIST_ITEMS.most);
        let facts = NodeFacts {
            hostname: long(),
            os: long(),
            not_enforced: vec![String::new(); items],
            ..NodeFacts::default()
        };
        let mut detected = NodeConfig::plain("n1", 1, Bytes(1));
        detected.gres = vec![NodeGres::plain("gpu", None, 1); items];
        detected.gres[0].files = texts;
        let attempt = AttemptId { job: JobId(1), number: 1 };
        let attempts = vec![SpooledAttempt { attempt, alive: false }; items];
        let mut hello = NodeHello { name: "n1".into(), facts, detected, attempts };
        cut_hello(&mut hello);
        let most = bounds::NODE_TEXT_BYTES.most;
        assert_eq!((hello.facts.hostname.len(), hello.facts.os.len()), (most, most));
        assert_eq!(hello.detected.gres[0].files[2].len(), most);
        let lengths =
            [hello.facts.not_enforced.len(), hello.detected.gres.len(), hello.attempts.len()];
        assert_eq!(lengths, [bounds::NODE_LIST_ITEMS.most; 3]);
    }
}
