//! What coordinators may give to the users and accounts below them: nothing beyond what their own account has.

use crate::authorise::{Act, authorise};
use crate::state::State;
use crate::state::association_tree::AssociationTree;
use model::account::{Association, AssociationLimits, NORMAL_QOS};
use model::principal::Principal;
use model::reason::Refusal;
use model::time::TimeLimit;
use model::tres::Tres;

type TresLimit = fn(&AssociationLimits) -> &Tres;
type CountLimit = fn(&AssociationLimits) -> Option<u32>;

/// Limits that the nearest association sets: one of a user takes the place of the account's. A `group_*` limit holds at
/// every level, so that none below can lift it.
const NEAREST_TRES: [TresLimit; 3] = [
    |limits| &limits.max_tres_per_job,
    |limits| &limits.max_tres_per_node,
    |limits| &limits.max_tres_minutes_per_job,
];
const NEAREST_COUNTS: [CountLimit; 3] =
    [|limits| limits.max_jobs, |limits| limits.max_jobs_accrue, |limits| limits.max_submit];

impl State {
    /// Refuses an association that a coordinator sets beyond what the account above has. What the association has
    /// already, by an operator, it may keep.
    pub(super) fn check_coordinator_grant(
        &self,
        set: &Association,
        by: &Principal,
    ) -> Result<(), Refusal> {
        if authorise(self, by, Act::Operate).is_ok() {
            return Ok(());
        }
        let tree = self.tree();
        let above = match &set.user {
            Some(_) => set.account.as_str(),
            None => self.parent_of(&set.account),
        };
        let above = Above { tree: &tree, at: tree.find(above, "", None) };
        let known = self.associations.iter().find(|a| a.key() == set.key());
        let permitted = above.permits_qos(set, known)
            && above.permits_priority(set, known)
            && above.permits_limits(&set.limits, known.map(|known| &known.limits));
        if permitted { Ok(()) } else { Err(Refusal::AccessDenied) }
    }
}

/// The account from which an association inherits.
struct Above<'a> {
    tree: &'a AssociationTree,
    at: Option<u32>,
}

impl Above<'_> {
    fn nearest<T>(&self, get: impl Fn(&Association) -> Option<T>) -> Option<T> {
        self.at.and_then(|at| self.tree.nearest(at, get))
    }

    fn permits_qos(&self, set: &Association, known: Option<&Association>) -> bool {
        let listed = self.nearest(|a| Some(a.qos.clone()).filter(|list| !list.is_empty()));
        let listed = listed.unwrap_or_else(|| vec![NORMAL_QOS.to_owned()]);
        let default = self.nearest(|a| a.default_qos.clone());
        let has = |name: &String| {
            let kept = known.is_some_and(|known| {
                known.qos.contains(name) || known.default_qos.as_ref() == Some(name)
            });
            kept || listed.contains(name) || default.as_ref() == Some(name)
        };
        set.qos.iter().chain(&set.default_qos).all(has)
    }

    fn permits_priority(&self, set: &Association, known: Option<&Association>) -> bool {
        let most = self.nearest(|a| a.priority).max(known.and_then(|known| known.priority));
        set.priority.unwrap_or(0) <= most.unwrap_or(0)
    }

    fn permits_limits(&self, set: &AssociationLimits, known: Option<&AssociationLimits>) -> bool {
        let counts = NEAREST_COUNTS.iter().all(|get| {
            let above = self.nearest(|a| get(&a.limits));
            within(get(set), above, known.map(get))
        });
        let tres = NEAREST_TRES.iter().all(|get| {
            get(set).iter().all(|(kind, amount)| {
                let above = self.nearest(|a| get(&a.limits).get(kind));
                within(Some(amount), above, known.map(|known| get(known).get(kind)))
            })
        });
        let minutes = |limit: TimeLimit| limit.minutes().map_or(u64::MAX, u64::from);
        let wall = |limits: &AssociationLimits| limits.max_wall.map(minutes);
        let wall = within(wall(set), self.nearest(|a| wall(&a.limits)), known.map(wall));
        // A lower threshold permits more; one that is not set is inherited.
        let threshold = set.min_priority_threshold.is_none_or(|least| {
            let above = self.nearest(|a| a.limits.min_priority_threshold).unwrap_or(0);
            least >= above || known.and_then(|k| k.min_priority_threshold) == Some(least)
        });
        counts && tres && wall && threshold
    }
}

/// Whether a limit is no looser than the one above, or than the one that is set already.
fn within<T: PartialOrd>(set: Option<T>, above: Option<T>, known: Option<Option<T>>) -> bool {
    let (Some(set), Some(above)) = (set, above) else { return true };
    set <= above || known.flatten().is_some_and(|known| set <= known)
}
