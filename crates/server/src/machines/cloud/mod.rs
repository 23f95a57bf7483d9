//! Clouds as sources of machines, each by its own HTTP API.
//!
//! `http` is one request, `secret` what must not be printed, `prices` the price file, `user_data` the script of a new machine;
//! `ec2` is Amazon's.

pub mod ec2;
mod http;
mod prices;
mod secret;
mod user_data;
