//! Clouds as sources of machines, each by its own HTTP API.
//!
//! `http` is one request, `rest` a call in JSON, `secret` what must not be printed, `prices` the price file, `user_data` the script
//! of a new machine, `machine_facts` and `offer_id` what offers are made of; `ec2` is Amazon's, `gcp` Google's, `lambda` Lambda's.

pub mod ec2;
pub mod gcp;
mod http;
pub mod lambda;
pub mod machine_facts;
mod offer_id;
mod prices;
pub mod rest;
pub mod secret;
pub mod user_data;
