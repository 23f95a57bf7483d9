//! Fleets: what is said of their machines, addresses and networks.

use crate::{load, refusal};
use dstack::configuration::Configuration;

#[test]
fn what_is_said_of_machines_in_a_fleet_of_hosts_is_told_to_have_no_effect() {
    let hosts = "type: fleet\nname: lab\nssh_config: {user: ada, hosts: [a]}\nblocks: auto\n";
    assert!(load(hosts).notices.is_empty());
    let more = "resources: {gpu: 8}\nidle_duration: 1h\nspot_policy: spot\nretry: false\n";
    let loaded = load(&format!("{hosts}{more}backends: null\n"));
    let notices: Vec<String> = loaded.notices.iter().map(|notice| notice.in_file("f")).collect();
    let places = ["f:5:12: `resources`", "f:7:14: `spot_policy`", "f:6:16: `idle_duration`"];
    assert_eq!(notices.len(), places.len(), "{notices:?}");
    for place in places {
        let is_told = |notice: &String| notice.starts_with(&format!("{place}: has no effect"));
        assert!(notices.iter().any(is_told), "{place}: {notices:?}");
    }
    assert!(loaded.applicable().is_ok());
    let machines = format!("type: fleet\nname: lab\nnodes: 2\n{more}");
    assert!(load(&machines).notices.is_empty());
}

#[test]
fn internal_address_of_a_host_is_one_that_dstack_takes_for_private() {
    let fleet = |ip: &str| {
        format!("type: fleet\nssh_config: {{hosts: [{{hostname: h, internal_ip: '{ip}'}}]}}\n")
    };
    for ip in ["10.0.0.1", "172.16.0.1", "192.168.1.1", "198.18.0.4", "192.0.2.4", "fd00::1"] {
        load(&fleet(ip));
    }
    for ip in ["8.8.8.8", "100.64.0.1", "198.20.0.1", "2a00::1", "host"] {
        assert!(refusal(&fleet(ip)).contains("expected a private IP"), "{ip}");
    }
}

#[test]
fn network_of_a_fleet_is_read_and_acts() {
    let fleet = |network: &str| {
        format!("type: fleet\nssh_config: {{user: u, hosts: [h], network: '{network}'}}\n")
    };
    for (given, read) in [
        ("10.88.0.0/24", "10.88.0.0/24"),
        ("10.88.0.7/255.255.0.0", "10.88.0.0/16"),
        ("fd00::/8", "fd00::/8"),
        ("192.168.1.4", "192.168.1.4/32"),
    ] {
        let loaded = load(&fleet(given));
        assert!(loaded.notices.is_empty(), "{given}: {:?}", loaded.notices);
        let Ok(Configuration::Fleet(fleet)) = loaded.applicable() else { panic!("a fleet") };
        assert_eq!(fleet.network.map(|network| network.to_string()).as_deref(), Some(read));
    }
    for wrong in ["10.0.0.0/33", "10.0.0.0/255.0.255.0", "10.0.0.0/0", "lab"] {
        let said = refusal(&fleet(wrong));
        assert!(said.contains("expected a private network such as 10.0.0.0/24"), "{said}");
    }
}
