//! Where jobs run: nodes, the partitions and fleets over them, the network between them, reservations of them, and what
//! the site has configured to be done on them; volumes.

pub mod backend;
pub mod cloud_fleet;
pub mod cloud_source;
pub mod cloud_volume;
pub mod dynamic_node;
pub mod fleet;
pub mod gpu_health;
pub mod gpu_series;
pub mod health;
pub mod machine;
pub mod node;
pub mod node_reason;
pub mod partition;
pub mod pod_source;
pub mod power;
pub mod reservation;
pub mod reservation_request;
pub mod select;
pub mod site;
pub mod ssh_fleet;
pub mod topology;
pub mod trigger;
pub mod volume;
