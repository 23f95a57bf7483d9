//! slurm
pub mod conf;
pub mod environment;
pub mod openapi;
pub mod option;
pub mod output;
pub mod request;
pub mod words;
