//! The configured binding of steps that ask for none.

use super::{CpuBind, CpuBinding, Level};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BindPolicy {
    /// Whether anything is bound at all.
    pub on: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<CpuBind>,
    /// The default of [`CpuBinding::fallback`].
    #[serde(rename = "otherwise", skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Level>,
    pub verbose: bool,
    /// By node name; applies if it is the same for all nodes of a step.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<String, CpuBind>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub partitions: BTreeMap<String, CpuBind>,
}

impl Default for BindPolicy {
    fn default() -> Self {
        Self {
            on: true,
            kind: None,
            fallback: None,
            verbose: false,
            nodes: BTreeMap::new(),
            partitions: BTreeMap::new(),
        }
    }
}

impl BindPolicy {
    /// The requested binding, completed by that of its nodes, its partition or the cluster. `None` if binding is off.
    pub fn resolve<'a>(
        &self,
        asked: &CpuBinding,
        nodes: impl IntoIterator<Item = &'a str>,
        partition: &str,
    ) -> Option<CpuBinding> {
        if !self.on {
            return None;
        }
        let mut of_nodes = nodes.into_iter().map(|node| self.nodes.get(node));
        let first = of_nodes.next().flatten();
        let by_nodes = first.filter(|first| of_nodes.all(|other| other == Some(*first)));
        let usual = by_nodes.or_else(|| self.partitions.get(partition)).or(self.kind.as_ref());
        let mut binding = asked.clone();
        binding.kind = binding.kind.or_else(|| usual.cloned());
        binding.verbose |= self.verbose;
        binding.fallback = binding.fallback.or(self.fallback);
        Some(binding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_come_before_partitions_and_both_before_the_rest() {
        let to = |level| Some(CpuBind::To(level));
        let policy = BindPolicy {
            kind: Some(CpuBind::None),
            fallback: Some(Level::Threads),
            nodes: [("a", Level::Cores), ("b", Level::Cores), ("c", Level::Sockets)]
                .map(|(node, level)| (node.to_owned(), CpuBind::To(level)))
                .into(),
            partitions: [("p".to_owned(), CpuBind::To(Level::Ldoms))].into(),
            ..BindPolicy::default()
        };
        let auto = CpuBinding::default();
        let kind = |nodes: &[&str], partition| {
            let found = policy.resolve(&auto, nodes.iter().copied(), partition).expect("bound");
            assert_eq!(found.fallback, Some(Level::Threads));
            found.kind
        };
        assert_eq!(kind(&["a", "b"], "p"), to(Level::Cores));
        assert_eq!(kind(&["a", "c"], "p"), to(Level::Ldoms));
        assert_eq!(kind(&["a", "d"], "q"), Some(CpuBind::None));
        let asked = CpuBinding { kind: Some(CpuBind::Rank), ..CpuBinding::default() };
        let found = policy.resolve(&asked, ["a"], "p").expect("bound");
        assert_eq!(found.kind, Some(CpuBind::Rank));
        let off = BindPolicy { on: false, ..policy.clone() };
        assert_eq!(off.resolve(&asked, ["a"], "p"), None);
    }
}
