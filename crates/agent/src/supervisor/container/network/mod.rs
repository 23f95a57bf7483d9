//! A network namespace of a container's own: a link to its node, a way out with the node's address, and ports of the node
//! that lead in.
//!
//! Each container has a link for itself instead of a place on a shared bridge: neighbours cannot be imitated, and nothing
//! outlives the container. The link ends with its namespace, the rules with the socket that the container's holder has,
//! the ports with the process that forwards them, whatever ends those.
//!
//! The namespace belongs to the node's user namespace: nobody inside has a right over it, not even the container's root.
//! That of a privileged container belongs to the container's own: its root makes links and rules in it, as a Docker daemon
//! does, and the node's rules hold outside of it.

mod links;
mod netlink;
mod packet_rules;
mod port_forwarder;

use super::SCRIPT_STEP;
use super::holder::Holder;
use super::user;
use super::{ContainerError, ContainerSpec};
use model::container::ContainerNetwork;
use model::site::{AddressRange, NetworkPolicy};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::Mode;
use packet_rules::Link;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Links of a node at a time.
const LINKS_MAX: u32 = 4096;
const OWN: &str = "/proc/self/ns/net";
const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";
/// In the container's namespace: any user may listen on any port and send a ping, since no one is root there.
const OPEN_TO_ALL: [(&str, &str); 2] = [
    ("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0"),
    ("/proc/sys/net/ipv4/ping_group_range", "0 2147483647"),
];

/// What a container's own network is, and what must stay open for as long as it has it.
#[derive(Default)]
pub(super) struct Made {
    pub network: Option<ContainerNetwork>,
    pub kept: Vec<OwnedFd>,
}

/// Why a container has no link to the node's network.
enum NoLink {
    AllInUse,
    Failed(String),
}

impl NoLink {
    fn into_text(self) -> String {
        match self {
            NoLink::AllInUse => "the container's network: all its addresses are in use".to_owned(),
            NoLink::Failed(why) => why,
        }
    }
}

impl From<String> for NoLink {
    fn from(why: String) -> Self {
        NoLink::Failed(why)
    }
}

/// Enters the network of the container that this process is to make: a new one, that of its job's script, or the node's.
/// What is started from here on is in it. `script` is the holder of the script's container, for a step of its job. A new one
/// belongs to the user namespace `owner`, or else to the node's.
pub(super) fn enter(
    spec: &ContainerSpec,
    script: Option<&Holder>,
    owner: Option<&OwnedFd>,
    say: &mut (dyn FnMut(&str) + Send),
) -> Result<Made, ContainerError> {
    let policy = spec.site.network;
    if !spec.own_network || policy == NetworkPolicy::Host {
        return Ok(Made::default());
    }
    if spec.step != SCRIPT_STEP {
        script.map_or(Ok(()), Holder::join_network)?;
        return Ok(Made::default());
    }
    let node = open_namespace()?;
    let way_out = check_forwarding();
    if let (NetworkPolicy::Auto, Err(why)) = (policy, &way_out) {
        say_if_ports_matter(spec, say, why);
        return Ok(Made::default());
    }
    let ports = &spec.request.ports;
    let listeners =
        port_forwarder::open_ports(spec.site.ports, ports).map_err(ContainerError::ports)?;
    match owner {
        Some(owner) => enter_new_of(owner),
        None => unshare(CloneFlags::CLONE_NEWNET),
    }
    .map_err(|e| failed("make its namespace", e))?;
    let own = open_namespace()?;
    links::switch_loopback_on().map_err(|e| failed("switch its loopback on", e))?;
    for (file, value) in OPEN_TO_ALL {
        fs::write(file, value).map_err(|e| format!("the container's network: {file}: {e}"))?;
    }
    let linked = way_out.map_err(NoLink::Failed).and_then(|()| {
        // In the node's namespace, which this process leaves again whatever comes of it.
        setns(&node, CloneFlags::CLONE_NEWNET).map_err(|e| failed("return to the node's", e))?;
        let linked = link(spec.site.addresses, &own);
        setns(&own, CloneFlags::CLONE_NEWNET).map_err(|e| failed("enter its namespace", e))?;
        let (rules, inside, gateway) = linked?;
        links::address_and_switch_on(links::INSIDE, inside)
            .and_then(|()| links::route_all_over(gateway))
            .map_err(|e| failed("switch its link on", e))?;
        Ok(rules)
    });
    let kept = match (linked, policy) {
        (Ok(rules), _) => vec![rules],
        // A node that has this network has it for all: none is put beside it because its addresses are taken.
        (Err(NoLink::Failed(why)), NetworkPolicy::Auto) => {
            say_if_ports_matter(spec, say, &why);
            setns(&node, CloneFlags::CLONE_NEWNET)
                .map_err(|e| failed("return to the node's", e))?;
            return Ok(Made::default());
        }
        (Err(why), NetworkPolicy::Auto) => return Err(why.into_text().into()),
        (Err(why), _) => {
            let why = why.into_text();
            // Wherever it failed: a container that is to be apart is never in the node's.
            setns(&own, CloneFlags::CLONE_NEWNET).map_err(|e| failed("enter its namespace", e))?;
            say(&format!("sluice: the container reaches nothing outside: {why}"));
            Vec::new()
        }
    };
    let mapped = port_forwarder::mappings(ports, &listeners);
    if !listeners.is_empty() {
        port_forwarder::start(spec.user, ports, listeners).map_err(ContainerError::ports)?;
    }
    Ok(Made { network: Some(ContainerNetwork { ports: mapped }), kept })
}

/// Enters a new network namespace that belongs to this user namespace, and stays in the node's own.
fn enter_new_of(owner: &OwnedFd) -> nix::Result<()> {
    let made = user::held_in_child(|| {
        setns(owner, CloneFlags::CLONE_NEWUSER)?;
        unshare(CloneFlags::CLONE_NEWNET)
    });
    let namespace = made?.open("net")?;
    setns(namespace, CloneFlags::CLONE_NEWNET)
}

fn failed(what: &str, errno: Errno) -> String {
    format!("the container's network: cannot {what}: {}", errno.desc())
}

/// A run that named ports is told that it has the node's own.
pub(super) fn say_if_ports_matter(
    spec: &ContainerSpec,
    say: &mut (dyn FnMut(&str) + Send),
    why: &str,
) {
    if !spec.request.ports.is_empty() {
        say(&format!("sluice: the container has the node's network and ports: {why}"));
    }
}

fn open_namespace() -> Result<OwnedFd, String> {
    open(Path::new(OWN), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(|e| failed("hold a namespace", e))
}

/// Whether the node passes packets on at all. It is not told to: that would make a router of it, for everybody.
fn check_forwarding() -> Result<(), String> {
    let is_on = fs::read_to_string(FORWARDING).is_ok_and(|text| text.trim() == "1");
    let why = || "this node passes no packets on (net.ipv4.ip_forward is not 1)".to_owned();
    if is_on { Ok(()) } else { Err(why()) }
}

/// Makes the link from the node's namespace. Returns the socket that holds its rules, and the addresses of its two ends,
/// the container's first.
fn link(
    range: AddressRange,
    own: &OwnedFd,
) -> Result<(OwnedFd, std::net::Ipv4Addr, std::net::Ipv4Addr), NoLink> {
    for number in 0..LINKS_MAX {
        let Some((outside, inside)) = range.link(number) else { break };
        // The name is the number's lock: the kernel has each once.
        let name = format!("sluice{number}");
        match links::make(&name, own) {
            Err(Errno::EEXIST) => continue,
            made => made.map_err(|e| failed("make its link", e))?,
        }
        // A container has no IPv6 beyond its own loopback.
        let ipv6 = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
        if Path::new(&ipv6).exists() {
            fs::write(&ipv6, "1").map_err(|e| format!("the container's network: {ipv6}: {e}"))?;
        }
        let index = links::index_of(&name).map_err(|e| failed("find its link", e))?;
        let containers = (range.first, range.mask());
        let rules = match (Link { name: &name, index, address: inside, containers }).make_rules() {
            // A former container of this name is gone, and the socket that owns its rules is not closed yet: they are its
            // own until then.
            Err(Errno::EEXIST) => {
                links::remove(index).map_err(|e| failed("remove its link", e))?;
                continue;
            }
            made => made.map_err(|e| failed("make its rules (nftables)", e))?,
        };
        links::address_and_switch_on(&name, outside)
            .map_err(|e| failed("switch its link on", e))?;
        return Ok((rules.into_fd(), inside, outside));
    }
    Err(NoLink::AllInUse)
}
