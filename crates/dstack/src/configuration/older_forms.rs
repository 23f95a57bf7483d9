//! Forms that dstack took before and writes otherwise now, as what they are now.

use super::field::Field;
use super::tree::{Entry, Node, Value};

/// The configuration in the words of today; `None` where it is that already.
///
/// A service had its groups of replicas as `replicas: [{count: 1}]` before dstack 0.21.3, and has them as `groups: [{replicas: 1}]`.
pub fn renamed(document: &Node) -> Option<Node> {
    let top = Field::top(document);
    let is_service = top.child("type")?.text("") == Ok("service");
    if !is_service || !top.child("replicas")?.is_list() {
        return None;
    }
    let mut renamed = document.clone();
    let groups = rename(&mut renamed, "replicas", "groups")?;
    if let Value::List(groups) = &mut groups.value {
        for group in groups {
            rename(group, "count", "replicas");
        }
    }
    Some(renamed)
}

/// Gives a key of a mapping another name, and hands out its value; `None` where there is no such key, or the name is taken: of two keys
/// of one name the second would be lost without a word.
fn rename<'a>(node: &'a mut Node, from: &str, to: &str) -> Option<&'a mut Node> {
    let Value::Map(entries) = &mut node.value else { return None };
    if entries.iter().any(|entry| entry.key == to) {
        return None;
    }
    let Entry { key, value, .. } = entries.iter_mut().find(|entry| entry.key == from)?;
    to.clone_into(key);
    Some(value)
}
