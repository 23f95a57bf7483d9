//! slurm
pub mod conf;
pub mod option;
pub mod environment;
pub mod output;
pub mod request;
pub mod words;
