//! Slurm's language: its command lines and files in, its texts out. It holds no policy and starts nothing.
//!
//! - [`option`]: the command lines. `table/` has every option as a row, `job_options/` the typed values.
//! - [`request`]: from options to the request that the server is sent; `step` is for `srun`.
//! - [`environment`]: the `SLURM_*` variables of jobs, steps, prolog and epilog, and the notices of a node.
//! - [`conf`]: `slurm.conf` and the files beside it, by tables of keys.
//! - [`mpi`]: what is said where ranks would not be connected.
//! - [`words`]: Slurm's words for states, reasons and refusals.
//! - [`output`]: what the commands print, a folder for each. A column is a row of its `fields.rs`.
//! - [`openapi`]: the objects of `--json`. The REST interface of slurmrestd belongs there.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod conf;
pub mod environment;
pub mod mpi;
pub mod openapi;
pub mod option;
pub mod output;
pub mod request;
pub mod words;
