//! From what was granted to what the kernel enforces and measures: allocation, limits, devices, CPU binding and frequency, usage.

pub mod allocation;
pub mod binding;
pub mod cpu_frequency;
mod device;
pub mod limits;
pub mod load;
pub mod usage;
