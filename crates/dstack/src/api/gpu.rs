//! `gpus/list`: offers in groups of equal GPUs.

use super::run::RunSpec;
use crate::status::OfferStatus;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct ListGpus {
    pub run_spec: RunSpec,
    /// Any of `backend`, `region`, `count`.
    pub group_by: Option<Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gpus {
    pub gpus: Vec<GpuGroup>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuGroup {
    pub name: String,
    pub memory_mib: u64,
    pub vendor: String,
    pub availability: Vec<OfferStatus>,
    /// `spot`, `on-demand`
    pub spot: Vec<String>,
    pub count: Bounds<u32>,
    /// Dollars per hour for one GPU.
    pub price: Bounds<f64>,
    /// Dollars per hour for the whole offer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer_price: Option<Bounds<f64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backends: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regions: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bounds<T> {
    pub min: T,
    pub max: T,
}
