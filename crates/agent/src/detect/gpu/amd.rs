//! AMD's GPUs, by the topology of the compute driver (KFD): its nodes are what a process of ROCm sees, and are counted in
//! the same order. A GPU that is divided into partitions has a node and a render node for each.

use super::{
    GpuDevice, Vendor, has_render_node, is, minors, model_in, models, number, pci_device, plain,
    render_nodes, render_path, trimmed,
};
use model::amount::Bytes;
use std::fs;
use std::path::{Path, PathBuf};

const PCI_VENDOR: &str = "0x1002";
/// The compute driver. Without it a card is for graphics only.
const COMPUTE_DRIVER: &str = "dev/kfd";
const TOPOLOGY: &str = "sys/class/kfd/kfd/topology/nodes";
/// The type of a link between GPUs (xGMI, Infinity Fabric) in the topology; a link over PCIe is no reason to prefer a pair.
const XGMI_LINK: u64 = 11;
/// The types of a memory bank that is the GPU's own: visible to the processor, and not.
const OWN_HEAPS: [u64; 2] = [1, 2];
/// Links and banks read of one node.
const PARTS_MAX: usize = 1024;

pub(super) fn detect(root: &Path) -> Vec<GpuDevice> {
    if !root.join(COMPUTE_DRIVER).exists() {
        return Vec::new();
    }
    let topology = root.join(TOPOLOGY);
    if !topology.exists() {
        return without_topology(root);
    }
    let mut numbers: Vec<u32> = minors(&topology, "").collect();
    numbers.sort_unstable();
    let nodes: Vec<ComputeNode> =
        numbers.into_iter().filter_map(|number| ComputeNode::read(&topology, number)).collect();
    let nodes: Vec<ComputeNode> =
        nodes.into_iter().filter(|node| has_render_node(root, node.render_minor)).collect();
    nodes.iter().map(|node| GpuDevice { links: node.links(&nodes), ..node.gpu(root) }).collect()
}

/// An older driver, or a container without its folder: each render node of the vendor's is a GPU.
fn without_topology(root: &Path) -> Vec<GpuDevice> {
    let gpu = |(minor, device): (u32, PathBuf)| {
        is(&device, "vendor", PCI_VENDOR).then(|| described(minor, &device))
    };
    render_nodes(root).into_iter().filter_map(gpu).collect()
}

/// A GPU by the folder of its device.
fn described(minor: u32, device: &Path) -> GpuDevice {
    let model = model_in(&device.join("product_name"));
    let model = model.or_else(|| models::of_device(Vendor::Amd, device));
    GpuDevice {
        memory: number(&device.join("mem_info_vram_total")).map(Bytes),
        unique_id: trimmed(&device.join("unique_id"))
            .and_then(|text| u64::from_str_radix(&text, 16).ok().and_then(unique_id)),
        ..plain(Vendor::Amd, model, render_path(minor), minor, device)
    }
}

/// The form in which `ROCR_VISIBLE_DEVICES` and the vendor's tools have it.
fn unique_id(number: u64) -> Option<String> {
    (number != 0).then(|| format!("GPU-{number:016x}"))
}

/// A node of the topology that is a GPU or a partition of one.
struct ComputeNode {
    number: u32,
    folder: PathBuf,
    properties: Properties,
    render_minor: u32,
}

impl ComputeNode {
    /// `None` if the node is a processor, or of a GPU that may not be used here.
    fn read(topology: &Path, node: u32) -> Option<ComputeNode> {
        let folder = topology.join(node.to_string());
        number(&folder.join("gpu_id")).filter(|id| *id != 0)?;
        let properties = Properties::read(&folder)?;
        let render_minor = properties.get("drm_render_minor")?.try_into().ok()?;
        Some(ComputeNode { number: node, folder, properties, render_minor })
    }

    fn gpu(&self, root: &Path) -> GpuDevice {
        let address = self.pci_address();
        let device = pci_device(root, &address);
        let whole = described(self.render_minor, &device);
        // The device's own figure is that of all its partitions.
        let memory = self.bank_bytes().or(whole.memory);
        let unique = self.properties.get("unique_id").and_then(unique_id);
        let unique_id = unique.or_else(|| whole.unique_id.clone());
        GpuDevice { memory, unique_id, pci: Some(address), ..whole }
    }

    /// Bus, device and function are the low half of the location; the high half counts partitions.
    fn pci_address(&self) -> String {
        let place = self.properties.get("location_id").unwrap_or(0);
        let domain = self.properties.get("domain").unwrap_or(0);
        let (bus, slot, function) = (place >> 8 & 0xff, place >> 3 & 0x1f, place & 7);
        format!("{domain:04x}:{bus:02x}:{slot:02x}.{function}")
    }

    fn parts(&self, kind: &str) -> Vec<Properties> {
        let folder = self.folder.join(kind);
        let numbers = minors(&folder, "").take(PARTS_MAX);
        numbers.filter_map(|part| Properties::read(&folder.join(part.to_string()))).collect()
    }

    fn bank_bytes(&self) -> Option<Bytes> {
        let banks = self.parts("mem_banks").into_iter();
        let own =
            banks.filter(|bank| bank.get("heap_type").is_some_and(|t| OWN_HEAPS.contains(&t)));
        let bytes: u64 = own.filter_map(|bank| bank.get("size_in_bytes")).sum();
        (bytes > 0).then_some(Bytes(bytes))
    }

    /// The links to each GPU, -1 for itself; empty if it has none to any.
    fn links(&self, nodes: &[ComputeNode]) -> Vec<i32> {
        let links = self.parts("io_links");
        let to = |other: &ComputeNode| {
            if other.number == self.number {
                return -1;
            }
            let between = links.iter().filter(|link| {
                link.get("type") == Some(XGMI_LINK)
                    && link.get("node_to") == Some(u64::from(other.number))
            });
            between.map(link_count).sum()
        };
        let counts: Vec<i32> = nodes.iter().map(to).collect();
        if counts.iter().any(|count| *count > 0) { counts } else { Vec::new() }
    }
}

/// The driver tells links that run side by side as one, whose bandwidth is a multiple of a single one's.
fn link_count(link: &Properties) -> i32 {
    let (single, all) = (link.get("min_bandwidth"), link.get("max_bandwidth"));
    let many = single.filter(|single| *single > 0).zip(all).map(|(single, all)| all / single);
    many.unwrap_or(1).clamp(1, 64) as i32
}

/// A file of the topology: a name and a number on each line.
struct Properties(Vec<(String, u64)>);

impl Properties {
    fn read(folder: &Path) -> Option<Properties> {
        let text = fs::read_to_string(folder.join("properties")).ok()?;
        let line = |line: &str| {
            let (name, value) = line.trim().split_once(' ')?;
            Some((name.to_owned(), value.trim().parse().ok()?))
        };
        Some(Properties(text.lines().filter_map(line).collect()))
    }

    fn get(&self, name: &str) -> Option<u64> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::super::detect_gpus;
    use super::super::tests::{link, put};
    use super::*;

    const GIB: u64 = 1 << 30;

    /// A node of the topology with the device that it names.
    fn compute_node(root: &Path, node: u32, minor: u32, location: u64, further: &str) {
        let folder = format!("{TOPOLOGY}/{node}");
        put(root, &format!("{folder}/gpu_id"), "51966\n");
        let text = format!(
            "simd_count 1216\nvendor_id 4098\nlocation_id {location}\ndomain 0\n\
             drm_render_minor {minor}\n{further}"
        );
        put(root, &format!("{folder}/properties"), &text);
        let bank = format!("heap_type 1\nsize_in_bytes {}\nflags 0\n", 192 * GIB);
        put(root, &format!("{folder}/mem_banks/0/properties"), &bank);
        put(root, &format!("dev/dri/renderD{minor}"), "");
        let bus = location >> 8 & 0xff;
        let address = format!("0000:{bus:02x}:00.0");
        let device = format!("sys/bus/pci/devices/{address}");
        put(root, &format!("{device}/vendor"), "0x1002\n");
        put(root, &format!("{device}/device"), "0x74a1\n");
        put(root, &format!("{device}/numa_node"), "1\n");
        put(root, &format!("{device}/local_cpulist"), "48-95\n");
        let drm = format!("sys/class/drm/renderD{minor}");
        if !root.join(&drm).exists() {
            link(root, &format!("{drm}/device"), &format!("../../../bus/pci/devices/{address}"));
        }
    }

    fn io_link(root: &Path, from: u32, to: u32, kind: u64, bandwidths: (u64, u64)) {
        let text = format!(
            "type {kind}\nnode_from {from}\nnode_to {to}\nweight 15\n\
             min_bandwidth {}\nmax_bandwidth {}\n",
            bandwidths.0, bandwidths.1
        );
        put(root, &format!("{TOPOLOGY}/{from}/io_links/{to}/properties"), &text);
    }

    #[test]
    fn gpus_of_the_topology_have_model_memory_identity_links_and_place() {
        let scratch = tempfile::tempdir().expect("scratch folder");
        let root = scratch.path();
        // A processor is a node too.
        put(root, &format!("{TOPOLOGY}/0/gpu_id"), "0\n");
        put(root, &format!("{TOPOLOGY}/0/properties"), "cpu_cores_count 96\n");
        // Counted as ROCm counts them, whatever their render nodes are.
        compute_node(root, 1, 129, 0x0500, "unique_id 1311768467463790320\n");
        compute_node(root, 2, 128, 0x2600, "unique_id 0\n");
        compute_node(root, 3, 130, 0x4600, "");
        put(root, "sys/bus/pci/devices/0000:26:00.0/product_name", "AMD Instinct MI300X OAM\n");
        put(root, "sys/bus/pci/devices/0000:26:00.0/mem_info_vram_total", "206141652992\n");
        put(root, &format!("{TOPOLOGY}/2/mem_banks/0/properties"), "heap_type 0\n");
        io_link(root, 1, 0, 2, (32_000, 32_000));
        io_link(root, 1, 2, XGMI_LINK, (64_000, 256_000));
        io_link(root, 2, 1, XGMI_LINK, (0, 0));
        io_link(root, 3, 1, 2, (32_000, 32_000));
        assert_eq!(detect_gpus(root), [], "without the compute driver there is no ROCm");
        put(root, "dev/kfd", "");
        let gpus = detect_gpus(root);
        let seen: Vec<_> = gpus
            .iter()
            .map(|gpu| (gpu.gres_type(), gpu.files(), gpu.pci.clone().expect("an address")))
            .collect();
        let expected = [
            ("amd_instinct_mi300x", "/dev/dri/renderD129", "0000:05:00.0"),
            ("amd_instinct_mi300x_oam", "/dev/dri/renderD128", "0000:26:00.0"),
            ("amd_instinct_mi300x", "/dev/dri/renderD130", "0000:46:00.0"),
        ];
        let owned = |(a, b, c): (&str, &str, &str)| (a.to_owned(), b.to_owned(), c.to_owned());
        assert_eq!(seen, expected.map(owned));
        assert_eq!(gpus[0].unique_id.as_deref(), Some("GPU-123456789abcdef0"));
        assert_eq!(gpus[1].unique_id, None);
        assert_eq!(gpus[0].memory, Some(Bytes(192 * GIB)), "by its banks");
        assert_eq!(gpus[1].memory, Some(Bytes(206_141_652_992)), "by its driver");
        assert_eq!(gpus[0].links, [-1, 4, 0]);
        assert_eq!(gpus[1].links, [1, -1, 0]);
        assert_eq!(gpus[2].links, [0; 0], "PCIe is no link");
        assert_eq!((gpus[0].numa_node, gpus[0].cpus.as_deref()), (Some(1), Some("48-95")));
        assert!(gpus.iter().all(|gpu| gpu.uuid.is_none()), "they are told by their numbers");
        // A container has the host's topology and some of its devices.
        fs::remove_file(root.join("dev/dri/renderD129")).expect("removed");
        let left = detect_gpus(root);
        assert_eq!((left.len(), left[0].links.len()), (2, 0), "its links went with it");
    }

    #[test]
    fn partitions_of_a_gpu_are_gpus_with_their_own_part_of_the_memory() {
        let scratch = tempfile::tempdir().expect("scratch folder");
        let root = scratch.path();
        put(root, "dev/kfd", "");
        for part in 0..2 {
            let location = u64::from(part) << 28 | 0x0500;
            compute_node(root, 1 + part, 128 + part, location, "num_xcc 1\n");
            let bank = format!("heap_type 1\nsize_in_bytes {}\n", 24 * GIB);
            let folder = format!("{TOPOLOGY}/{}/mem_banks/0", 1 + part);
            put(root, &format!("{folder}/properties"), &bank);
        }
        put(root, "sys/bus/pci/devices/0000:05:00.0/mem_info_vram_total", "206141652992\n");
        let gpus = detect_gpus(root);
        let seen: Vec<_> =
            gpus.iter().map(|gpu| (gpu.files(), gpu.pci.as_deref(), gpu.memory)).collect();
        let part = |minor: u32| {
            let file = format!("/dev/dri/renderD{minor}");
            (file, Some("0000:05:00.0"), Some(Bytes(24 * GIB)))
        };
        assert_eq!(seen, [part(128), part(129)]);
    }

    #[test]
    fn gpus_without_a_topology_are_the_vendors_render_nodes() {
        let scratch = tempfile::tempdir().expect("scratch folder");
        let root = scratch.path();
        put(root, "dev/kfd", "");
        for (minor, vendor) in [(128, "0x1002\n"), (129, "0x8086\n"), (130, "0x1002\n")] {
            let device = format!("sys/class/drm/renderD{minor}/device");
            put(root, &format!("{device}/vendor"), vendor);
            put(root, &format!("{device}/class"), "0x030000\n");
            put(root, &format!("{device}/product_name"), "AMD Instinct MI210\n");
            put(root, &format!("{device}/unique_id"), "9c3f21a04b7d5e66\n");
            put(root, &format!("dev/dri/renderD{minor}"), "");
        }
        fs::remove_file(root.join("dev/dri/renderD130")).expect("removed");
        let gpus = detect_gpus(root);
        assert_eq!(gpus.len(), 1);
        assert_eq!(gpus[0].gres_type(), "amd_instinct_mi210");
        assert_eq!(gpus[0].unique_id.as_deref(), Some("GPU-9c3f21a04b7d5e66"));
    }

    #[test]
    fn damaged_files_of_the_topology_are_passed_over() {
        let scratch = tempfile::tempdir().expect("scratch folder");
        let root = scratch.path();
        put(root, "dev/kfd", "");
        compute_node(root, 1, 128, 0x0500, "");
        put(root, &format!("{TOPOLOGY}/2/gpu_id"), "no number\n");
        put(root, &format!("{TOPOLOGY}/3/gpu_id"), "7\n");
        put(root, &format!("{TOPOLOGY}/4/gpu_id"), "7\n");
        put(root, &format!("{TOPOLOGY}/4/properties"), "drm_render_minor -1\n\u{0}\n");
        put(root, &format!("{TOPOLOGY}/1/io_links/0/properties"), "type\n");
        let files: Vec<String> = detect_gpus(root).iter().map(GpuDevice::files).collect();
        assert_eq!(files, ["/dev/dri/renderD128"]);
    }
}
