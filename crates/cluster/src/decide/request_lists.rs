//! The bounds of the lists in a request. A request comes as a structure: what its words would be held to when they are read, it is
//! held to here.

use model::bounds;
use model::constraint::Constraint;
use model::machine_choice::MachineChoice;
use model::reason::Refusal;
use model::request::Request;

/// Holds the lists of a request to their bounds: a plan looks at them for each node, and makes of a constraint one for each of its
/// alternatives.
pub(super) fn check_lists(request: &Request) -> Result<(), Refusal> {
    for named in [request.partitions.len(), request.licenses.len(), request.gres.len()] {
        bounds::REQUEST_KINDS.hold(named)?;
    }
    for gres in &request.gres {
        bounds::REQUEST_KINDS.hold(gres.kinds.len())?;
    }
    if let Some(MachineChoice { backends, regions, zones, types, .. }) = request.machines.as_deref()
    {
        for named in [backends, regions, zones, types] {
            bounds::MACHINE_NAMES.hold(named.len())?;
        }
    }
    bounds::NODE_COUNTS.hold(request.node_counts.len())?;
    let constraints = request.constraint.iter().chain(&request.prefer);
    constraints.map(Constraint::size).try_for_each(|size| bounds::CONSTRAINT_PARTS.hold(size))
}
