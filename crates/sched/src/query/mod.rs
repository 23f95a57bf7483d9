//! Questions about jobs that are answered by the same planning and placement as `plan` itself.

pub mod estimate;
pub mod explain;
pub mod feasible;
pub mod offers;
pub mod what_if;
