//! What a user may name at a submit. It is asked for after a name was refused, and changes nothing.

use super::submit::check_access;
use crate::rights::Rights;
use crate::state::State;
use crate::visibility::Viewer;
use model::account::NORMAL_QOS;
use model::partition::{Partition, PartitionState};
use model::principal::Principal;
use std::collections::BTreeSet;

impl State {
    /// The partitions that take jobs of the user, in the order of the configuration.
    pub fn partition_choices(&self, who: &Principal) -> Vec<String> {
        let viewer = Viewer::new(self, who);
        let is_open = |partition: &Partition| {
            !partition.hidden
                && matches!(partition.state, PartitionState::Up | PartitionState::Down)
                && viewer.partitions()
                && viewer.fleet(&partition.name)
                && check_access(partition, who).is_ok()
        };
        let open = self.partitions.iter().filter(|partition| is_open(partition));
        open.map(|partition| partition.name.clone()).collect()
    }

    /// The accounts that the user's jobs may be charged to.
    pub fn account_choices(&self, who: &Principal) -> Vec<String> {
        let own: BTreeSet<&str> = Rights::of(self, who).own_accounts().into_iter().collect();
        own.into_iter().map(str::to_owned).collect()
    }

    /// The QOS that the user's associations have; all that there are where those are not asked.
    pub fn qos_choices(&self, who: &Principal) -> Vec<String> {
        let tree = self.tree();
        let name = who.name.as_str();
        let own = self.associations.iter().filter(|a| a.user.as_deref() == Some(name));
        let members = own.filter_map(|a| tree.find_user(&a.account, name, a.partition.as_deref()));
        let lists: Vec<Vec<String>> = members
            .map(|at| tree.nearest(at, |a| Some(a.qos.clone()).filter(|q| !q.is_empty())))
            .map(|listed| listed.unwrap_or_else(|| vec![NORMAL_QOS.to_string()]))
            .collect();
        if lists.is_empty() || !self.config.parameters.enforce_qos {
            return self.qos.keys().cloned().collect();
        }
        let named: BTreeSet<String> = lists.into_iter().flatten().collect();
        named.into_iter().filter(|name| self.qos.contains_key(name)).collect()
    }
}
