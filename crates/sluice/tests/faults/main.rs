//! Killed processes, full disks, cut journals and hostile connections: what must survive them.

#[path = "../harness/mod.rs"]
mod harness;

#[path = "../../../store/tests/database/mod.rs"]
#[allow(dead_code, reason = "the tests of the store use the rest")]
mod database;

mod agent_restart;
mod connections;
mod database_tls;
mod database_trouble;
mod disk_full;
mod history;
mod journal_tail;
mod kill_loop;
mod many_agents;
mod many_running;
mod server_and_node;
mod server_cuts;
mod server_hosts;
mod server_restart;
mod servers;
mod several_servers;
mod silent_servers;
mod store_moves;
mod storm_of_servers;
