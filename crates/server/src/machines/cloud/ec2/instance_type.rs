//! What EC2 tells of its types of machines: sizes, devices, and what they can be made with.

use super::super::machine_facts::{gpu_kind, visible_memory};
use super::api::{child, items, value};
use model::amount::Bytes;
use model::machine::OfferedGpus;
use roxmltree::Node;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceType {
    pub name: String,
    pub cpus: u32,
    /// What its system sees.
    pub memory: Bytes,
    pub gpus: Option<OfferedGpus>,
    pub architectures: Vec<String>,
    pub has_spot: bool,
    pub has_efa: bool,
    pub has_cluster_placement: bool,
}

impl InstanceType {
    /// Reads an item of DescribeInstanceTypes; `None` for a type that no node could be.
    pub fn read(item: Node<'_, '_>) -> Option<Self> {
        let texts = |way: &str| -> Vec<String> {
            let all = items(item, way);
            all.iter().filter_map(|of| of.text()).map(|text| text.trim().to_owned()).collect()
        };
        let name = value(item, "instanceType")?.to_owned();
        let cpus = value(item, "vCpuInfo/defaultVCpus")?.parse::<u32>().ok().filter(|n| *n > 0)?;
        let memory = value(item, "memoryInfo/sizeInMiB")?.parse::<u64>().ok()?;
        let gpus = child(item, "gpuInfo").map(|_| gpus(item));
        // A part of a GPU is none that a job could be given.
        if gpus == Some(None) {
            return None;
        }
        let usage = texts("supportedUsageClasses");
        let strategies = texts("placementGroupInfo/supportedStrategies");
        Some(Self {
            name,
            cpus,
            memory: visible_memory(memory),
            gpus: gpus.flatten(),
            architectures: texts("processorInfo/supportedArchitectures"),
            has_spot: usage.is_empty() || usage.iter().any(|class| class == "spot"),
            has_efa: value(item, "networkInfo/efaSupported") == Some("true"),
            has_cluster_placement: strategies.iter().any(|strategy| strategy == "cluster"),
        })
    }
}

fn gpus(item: Node<'_, '_>) -> Option<OfferedGpus> {
    let all = items(item, "gpuInfo/gpus");
    let first = all.first()?;
    let count = |of: &Node<'_, '_>| value(*of, "count").and_then(|text| text.parse::<u32>().ok());
    let total = all.iter().filter_map(count).try_fold(0, u32::checked_add)?;
    let memory = value(*first, "memoryInfo/sizeInMiB").and_then(|text| text.parse::<u64>().ok());
    let kind = gpu_kind(value(*first, "name")?);
    (total > 0).then(|| OfferedGpus { kind, count: total, memory: memory.map(Bytes::from_mib) })
}

#[cfg(test)]
mod tests {
    use super::super::api::parse;
    use super::*;

    #[test]
    fn types_are_read_with_their_devices() {
        let text = "<R><set>\
            <item><instanceType>g4dn.xlarge</instanceType><vCpuInfo><defaultVCpus>4</defaultVCpus></vCpuInfo>\
            <memoryInfo><sizeInMiB>16384</sizeInMiB></memoryInfo>\
            <supportedUsageClasses><item>on-demand</item><item>spot</item></supportedUsageClasses>\
            <processorInfo><supportedArchitectures><item>x86_64</item></supportedArchitectures></processorInfo>\
            <gpuInfo><gpus><item><name>T4</name><count>1</count><memoryInfo><sizeInMiB>16384</sizeInMiB></memoryInfo></item></gpus></gpuInfo>\
            <networkInfo><efaSupported>true</efaSupported></networkInfo>\
            <placementGroupInfo><supportedStrategies><item>cluster</item></supportedStrategies></placementGroupInfo></item>\
            <item><instanceType>g6f.large</instanceType><vCpuInfo><defaultVCpus>2</defaultVCpus></vCpuInfo>\
            <memoryInfo><sizeInMiB>8192</sizeInMiB></memoryInfo>\
            <gpuInfo><gpus><item><name>L4</name><count>0</count></item></gpus></gpuInfo></item>\
            <item><instanceType>odd</instanceType></item></set></R>";
        let document = parse("T", text).expect("XML");
        let all = items(document.root_element(), "set");
        let found: Vec<InstanceType> = all.into_iter().filter_map(InstanceType::read).collect();
        assert_eq!(found.len(), 1, "a part of a GPU, and a type without a size, are none");
        let one = &found[0];
        assert_eq!((one.cpus, one.memory), (4, Bytes::from_mib(16384 - 1024 - 64)));
        let gpus = one.gpus.as_ref().expect("GPUs");
        assert_eq!((gpus.kind.as_str(), gpus.count), ("t4", 1));
        assert!(one.has_spot && one.has_efa && one.has_cluster_placement);
    }
}
