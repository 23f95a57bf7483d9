//! From what was granted to what the kernel enforces and measures: allocation, limits, devices, CPU binding, usage.

pub mod allocation;
pub mod binding;
mod device;
pub mod limits;
pub mod load;
pub mod usage;
