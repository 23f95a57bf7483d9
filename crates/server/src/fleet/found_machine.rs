//! The machine of a fleet's host, within what a machine may have: its agent says it, and the scheduler counts on it.

use model::amount::Bytes;
use model::bounds;
use model::cpuset::CpuSet;
use model::node::{NodeConfig, NodeGres};
use model::printable::is_unprintable;

const CPUS_MAX: u32 = 8192;
const MEMORY_MAX: Bytes = Bytes(1 << 50);

/// The longest name of a device, its kind, file or variable.
const TEXT_BYTES_MAX: usize = 256;
/// The variables of one line.
const VARIABLES_MAX: usize = 16;
/// The links between all devices: each of 128 with each.
const LINKS_MAX: usize = 128 * 128;

/// What an agent found, held to what a machine may have.
pub fn within_bounds(found: &NodeConfig) -> NodeConfig {
    let cpus = found.cpus.clamp(1, CPUS_MAX);
    let parts = [found.sockets, found.cores_per_socket, found.threads_per_core];
    let product = parts.iter().try_fold(1_u32, |product, part| product.checked_mul(*part));
    // Parts that do not make up the whole are not known.
    let [sockets, cores, threads] = if product == Some(cpus) { parts } else { [1, cpus, 1] };
    NodeConfig {
        boards: 1,
        sockets,
        cores_per_socket: cores,
        threads_per_core: threads,
        tmp_disk: Bytes(found.tmp_disk.0.min(MEMORY_MAX.0)),
        gres: devices(&found.gres),
        hostname: found.hostname.chars().filter(|c| !is_unprintable(*c)).take(255).collect(),
        cpus_reserved: CpuSet::new(),
        ..NodeConfig::plain(&found.name, cpus, Bytes(found.memory.0.min(MEMORY_MAX.0)))
    }
}

fn fits(text: &str) -> bool {
    (1..=TEXT_BYTES_MAX).contains(&text.len()) && !text.contains(is_unprintable)
}

/// Lines with a text that cannot be are left out, and so are all beyond what a node may have. What is not said for each unit
/// is not known.
fn devices(found: &[NodeGres]) -> Vec<NodeGres> {
    let mut left = bounds::NODE_DEVICES.most as u64;
    let mut links_left = LINKS_MAX;
    let mut kept = Vec::new();
    for line in found {
        let variables = line.variables.as_deref().unwrap_or_default();
        let mut texts = [&line.name].into_iter().chain(&line.kind).chain(variables);
        let count = line.count.min(left);
        if count == 0 || variables.len() > VARIABLES_MAX || !texts.all(|text| fits(text)) {
            continue;
        }
        left -= count;
        let mut line = NodeGres { count, ..line.clone() };
        for texts in [&mut line.files, &mut line.device_names] {
            if texts.len() as u64 != count || !texts.iter().all(|text| fits(text)) {
                texts.clear();
            }
        }
        if line.links.len() > links_left {
            line.links.clear();
        }
        links_left -= line.links.len();
        kept.push(line);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_that_cannot_be_is_held_to_what_can() {
        let plain = NodeConfig::plain("a", 8, Bytes::from_gib(4));
        assert_eq!(within_bounds(&plain), plain);
        let mut odd = NodeConfig { sockets: u32::MAX, threads_per_core: 2, ..plain.clone() };
        odd.cpus = 0;
        odd.memory = Bytes(u64::MAX);
        odd.gres = vec![NodeGres::plain("gpu", None, u64::MAX), NodeGres::plain("a\nb", None, 1)];
        let held = within_bounds(&odd);
        assert_eq!((held.cpus, held.sockets, held.threads_per_core), (1, 1, 1));
        assert_eq!(held.memory, MEMORY_MAX);
        let counts: Vec<u64> = held.gres.iter().map(|line| line.count).collect();
        assert_eq!(counts, [bounds::NODE_DEVICES.most as u64]);
    }

    #[test]
    fn devices_are_bounded_together_and_so_are_their_texts() {
        let long = "x".repeat(TEXT_BYTES_MAX + 1);
        let good =
            NodeGres { files: vec!["/dev/a".into()], ..NodeGres::plain("gpu", Some("h100"), 1) };
        let table = [
            (good.clone(), Some(good.clone())),
            (NodeGres { kind: Some("h\u{1b}[2J".into()), ..good.clone() }, None),
            (NodeGres { kind: Some(long.clone()), ..good.clone() }, None),
            (NodeGres { variables: Some(vec![long.clone()]), ..good.clone() }, None),
            (NodeGres { variables: Some(vec!["A".into(); 17]), ..good.clone() }, None),
            (
                NodeGres { files: vec![long], ..good.clone() },
                Some(NodeGres { files: Vec::new(), ..good.clone() }),
            ),
            (
                NodeGres { files: vec!["/dev/a".into(); 2], ..good.clone() },
                Some(NodeGres { files: Vec::new(), ..good.clone() }),
            ),
        ];
        for (said, expected) in table {
            assert_eq!(devices(std::slice::from_ref(&said)), Vec::from_iter(expected), "{said:?}");
        }
        let most = bounds::NODE_DEVICES.most;
        let many = vec![NodeGres { links: vec![0; most], ..good }; most + 1];
        let held = devices(&many);
        assert_eq!(held.len(), most);
        assert_eq!(held.iter().map(|line| line.links.len()).sum::<usize>(), LINKS_MAX);
    }
}
