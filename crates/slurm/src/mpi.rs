//! MPI: what is said where ranks would not be connected, because nothing here speaks PMI to them.

/// What a user and an administrator are told.
pub const NOT_CONNECTED: &str =
    "the ranks of an MPI program are not connected here: each task would be a program of one rank";

/// The words of `MpiDefault` and `--mpi` that ask for no connection.
const NONE: [&str; 4] = ["", "none", "openmpi", "(null)"];

/// Whether Slurm knows this kind of MPI.
pub fn is_known(kind: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    !connects_ranks(&kind) || kind == "pmi2" || kind == "cray_shasta" || kind.starts_with("pmix")
}

/// Whether this kind of MPI (`MpiDefault`, `--mpi`) would connect the tasks of a step.
pub fn connects_ranks(kind: &str) -> bool {
    !NONE.iter().any(|none| none.eq_ignore_ascii_case(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_connect_ranks_are_known() {
        for kind in ["pmi2", "PMIX", "pmix_v4", "cray_shasta"] {
            assert!(connects_ranks(kind), "{kind}");
        }
        for kind in ["", "none", "None", "openmpi"] {
            assert!(!connects_ranks(kind) && is_known(kind), "{kind}");
        }
        assert!(is_known("pmi2") && is_known("PMIx_v4") && !is_known("bogus"));
    }
}
