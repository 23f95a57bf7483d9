//! `sluice doctor`: what this machine can and cannot enforce, and how to fix it.

use super::verb::{ServerLocationArgs, VerbError, VerbResult};
use ::agent::cgroup::{Hierarchy, Plugin};
use ::agent::detect::{Machine, node_config_line};
use clap::Args;
use std::process::ExitCode;
use wire::client::{Answer, Call};

#[derive(Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
}

pub fn run(args: DoctorArgs) -> VerbResult {
    let machine = Machine::detect().map_err(|e| VerbError::Message(e.to_string()))?;
    println!("this machine: {}", node_config_line(&machine));
    let root = nix::unistd::geteuid().is_root();
    if root {
        println!("user:         root: jobs run as their own users")
    } else {
        println!("user:         not root: jobs run only as you; start as root to serve others")
    }
    enforcement();
    match args.server.client().and_then(|mut c| c.call(Call::Cluster)) {
        Ok(Answer::Cluster(cluster)) => {
            println!("server:       answers; cluster {}", cluster.name);
            for node in cluster.nodes {
                let declared = if node.config.declared { ", declared" } else { "" };
                println!("node {}: {:?}{declared}", node.config.name, node.slot);
                for gap in &node.facts.not_enforced {
                    println!("  not enforced: {gap}");
                }
            }
        }
        Ok(other) => println!("server:       answered {other:?}"),
        Err(error) => println!("server:       {error}; start one with `sluice up`"),
    }
    Ok(ExitCode::SUCCESS)
}

fn enforcement() {
    let hierarchy = match Hierarchy::discover(Plugin::Auto, "sluice") {
        Ok(hierarchy) => hierarchy,
        Err(error) => return println!("groups:       none can be used: {error}"),
    };
    // The check leaves no group behind.
    let _ = hierarchy.remove_root();
    let can = hierarchy.capabilities();
    println!("groups:       {:?}", can.layout);
    let rows = [
        ("memory", can.memory_hard),
        ("swap", can.swap),
        ("cores", can.cpuset),
        ("freeze", can.freeze),
        ("kill by group", can.kill),
        ("processes", can.pids),
        ("devices", can.devices),
        ("CPU time", can.usage_cpu),
    ];
    for (what, yes) in rows {
        println!("  {what:<14}{}", if yes { "enforced" } else { "NOT enforced" });
    }
    for (what, why) in &can.why_not {
        println!("  {what}: {why}");
    }
}
