//! The client of registries: plain blocking calls over HTTP and TLS.
//!
//! - `config.rs`: what a site says about registries, and credentials.
//! - `http.rs`: one request with its timeouts, redirects and bounds.
//! - `challenge.rs`: what a registry asks for when it refuses, and the token for it.
//! - `client.rs`: manifests and configurations of one image, over its mirrors.
//! - `download.rs`: a blob into a file, from where it broke off.

mod challenge;
mod client;
mod config;
mod download;
mod http;

pub use client::Client;
pub use config::{Credentials, RegistryConfig, Timeouts};
pub use http::machine_authorities;
