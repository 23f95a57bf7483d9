//! The calls about machines on demand: `sluice machine`.

use crate::clock;
use crate::shared::Shared;
use crate::show::machine_list;
use cluster::authorise::{Act, authorise};
use model::principal::Principal;
use model::reason::Refusal;
use wire::client::Answer;

/// Sources and machines with what they cost, for operators.
pub fn list(shared: &Shared, by: &Principal) -> Result<Answer, Refusal> {
    let state = shared.read();
    authorise(&state, by, Act::Operate)?;
    let statuses = &shared.volatile.source_statuses;
    let bound = &shared.setup.agents_addresses;
    Ok(Answer::Machines(machine_list::view(&state, statuses, bound, clock::now())))
}
