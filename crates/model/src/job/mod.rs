//! What users submit and what becomes of it: the request, the run with its jobs, arrays and steps, each attempt to run a
//! job, why a job waits, and how a job is changed.

pub mod array;
pub mod attempt;
pub mod change;
pub mod constraint;
pub mod container;
pub mod dependency;
pub mod gpu;
pub mod gpu_model;
pub mod gres;
pub mod interpolation;
pub mod machine_choice;
pub mod mail;
mod outcome;
pub mod pod;
pub mod port_forward;
mod process_policy;
pub mod publication;
pub mod reason;
pub mod replica_group;
pub mod request;
pub mod run;
pub mod service;
pub mod shortage;
pub mod step;
pub mod streams;
