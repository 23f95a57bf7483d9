//! `scontrol show topology`.

use model::hostlist;
use model::topology::{Switch, Topology};

/// Standard error without a topology.
pub const NO_TOPOLOGY: &str = "scontrol: error: No topology information available";

/// All switches, the switch of this name, or the switches above the node of this name; `None` for an unknown name.
pub fn text(topology: &Topology, name: Option<&str>) -> Option<String> {
    let is_wanted = |switch: &&Switch| match name {
        None => true,
        Some(name) if topology.switch(name).is_some() => switch.name == name,
        Some(name) => topology.nodes_below(switch).contains(&name),
    };
    let lines: String =
        topology.switches.iter().filter(is_wanted).map(|switch| line(topology, switch)).collect();
    (!lines.is_empty()).then_some(lines)
}

fn line(topology: &Topology, switch: &Switch) -> String {
    let nodes = hostlist::compress_sorted(topology.nodes_below(switch));
    if topology.is_blocks() {
        let size = topology.block_sizes.first().copied().unwrap_or(1);
        return format!(
            "BlockName={} BlockIndex={} Nodes={nodes} BlockSize={size}\n",
            switch.name,
            index(topology, switch)
        );
    }
    let mut line = format!(
        "SwitchName={} Level={} LinkSpeed={} Nodes={nodes}",
        switch.name,
        topology.level(switch),
        switch.link_speed
    );
    if !switch.switches.is_empty() {
        line.push_str(&format!(" Switches={}", hostlist::compress_sorted(&switch.switches)));
    }
    line.push('\n');
    line
}

fn index(topology: &Topology, block: &Switch) -> usize {
    topology.switches.iter().position(|other| other.name == block.name).unwrap_or(0)
}

/// Standard error for a name that is none.
pub fn unknown(name: &str) -> String {
    format!("scontrol: error: Topology information contains no switch or node named {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_shown_as_captured() {
        let switch = |name: &str, nodes: &str, switches: &str| Switch {
            name: name.into(),
            nodes: hostlist::expand(nodes).expect("a good list"),
            switches: hostlist::expand(switches).expect("a good list"),
            link_speed: 1,
        };
        let tree = Topology {
            switches: vec![
                switch("s0", "n[1-3]", ""),
                switch("s1", "n[4-6]", ""),
                switch("top", "", "s[0-1]"),
            ],
            ..Topology::default()
        };
        assert_eq!(
            text(&tree, None).as_deref(),
            Some(
                "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[1-3]\n\
                 SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[4-6]\n\
                 SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-6] Switches=s[0-1]\n"
            )
        );
        assert_eq!(
            text(&tree, Some("n4")).as_deref(),
            Some(
                "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[4-6]\n\
                 SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-6] Switches=s[0-1]\n"
            )
        );
        assert_eq!(
            text(&tree, Some("s0")).as_deref(),
            Some("SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[1-3]\n")
        );
        assert_eq!(text(&tree, Some("zz")), None);
    }
}
