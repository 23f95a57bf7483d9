//! Slices of NVIDIA GPUs (MIG): the capability files that each needs, and the UUIDs by which CUDA knows them.

use super::{GpuDevice, minors, names_in, value_of, vendor_tool};
use model::amount::Bytes;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Stands for the profile of a slice that is not known.
const UNNAMED_PROFILE: &str = "MIG";
/// From this driver version on a slice has a UUID of its own; before, it is named by its GPU and its position.
const OWN_NAMES_SINCE: u32 = 470;
/// The paths of `nvidia-smi`, the only source of the slices' UUIDs, as packages, installers and machine images have it.
const NVIDIA_SMI_PATHS: [&str; 3] =
    ["usr/bin/nvidia-smi", "usr/local/bin/nvidia-smi", "usr/local/nvidia/bin/nvidia-smi"];
const NVIDIA_SMI_TIMEOUT: Duration = Duration::from_secs(20);

/// Replaces a GPU in MIG mode by its slices. Each needs the capability files of its GPU instance and of its compute
/// instance.
pub(super) fn split_into_slices(root: &Path, whole: GpuDevice) -> Vec<GpuDevice> {
    let instances = format!("proc/driver/nvidia/capabilities/gpu{}/mig", whole.minor);
    let instances = root.join(instances);
    let right = |folder: &Path| {
        let text = fs::read_to_string(folder.join("access")).ok()?;
        let minor: u32 = value_of(&text, "DeviceFileMinor")?.parse().ok()?;
        Some(format!("/dev/nvidia-caps/nvidia-cap{minor}"))
    };
    let of_gpu = gpu_uuid(root, whole.minor);
    let mut slices = Vec::new();
    for (gi, instance) in numbered(&instances, "gi") {
        let Some(to_instance) = right(&instance) else { continue };
        for (ci, share) in numbered(&instance, "ci") {
            let Some(to_share) = right(&share) else { continue };
            let capabilities = vec![to_instance.clone(), to_share];
            let model = format!("{} {UNNAMED_PROFILE}", whole.model);
            let uuid = of_gpu.as_ref().map(|gpu| format!("MIG-{gpu}/{gi}/{ci}"));
            slices.push(GpuDevice { model, capabilities, uuid, ..whole.clone() });
        }
    }
    if slices.is_empty() { vec![whole] } else { slices }
}

/// The folders `prefixN` in a folder, sorted by number.
fn numbered(folder: &Path, prefix: &'static str) -> Vec<(u32, PathBuf)> {
    let mut numbers: Vec<u32> = minors(folder, prefix).collect();
    numbers.sort_unstable();
    numbers.into_iter().map(|number| (number, folder.join(format!("{prefix}{number}")))).collect()
}

fn gpu_uuid(root: &Path, minor: u32) -> Option<String> {
    let gpus = root.join("proc/driver/nvidia/gpus");
    names_in(&gpus).into_iter().find_map(|address| {
        let text = fs::read_to_string(gpus.join(address).join("information")).ok()?;
        let own: u32 = value_of(&text, "Device Minor")?.parse().ok()?;
        (own == minor).then(|| value_of(&text, "GPU UUID").map(str::to_owned))?
    })
}

/// Sets the UUIDs that a newer driver gives to slices, and their profiles with the memory that these name. Where they
/// cannot be determined, slices have none.
pub(super) fn set_slice_uuids(root: &Path, gpus: &mut [GpuDevice]) {
    let sliced = gpus.iter().any(|gpu| !gpu.capabilities.is_empty());
    if !sliced || driver(root).is_some_and(|major| major < OWN_NAMES_SINCE) {
        return;
    }
    let listers = NVIDIA_SMI_PATHS.iter().map(|path| root.join(path));
    let listed = listers
        .into_iter()
        .find_map(|path| vendor_tool::output(&path, &["-L"], NVIDIA_SMI_TIMEOUT));
    let listed = listed.map(|text| names(&text)).unwrap_or_default();
    let mut minors: Vec<u32> = gpus.iter().map(|gpu| gpu.minor).collect();
    minors.dedup();
    for minor in minors {
        let slices =
            gpus.iter_mut().filter(|gpu| gpu.minor == minor && !gpu.capabilities.is_empty());
        let mut slices: Vec<&mut GpuDevice> = slices.collect();
        // Both lists are sorted by GPU instance and compute instance.
        let own = gpu_uuid(root, minor);
        let found =
            listed.iter().find(|(gpu, _)| Some(gpu) == own.as_ref()).map(|(_, names)| names);
        let fits = found.filter(|names| names.len() == slices.len());
        for (at, slice) in slices.iter_mut().enumerate() {
            let listed = fits.and_then(|names| names.get(at));
            slice.uuid = listed.map(|listed| listed.uuid.clone());
            if let Some(profile) = listed.map(|listed| &listed.profile).filter(|p| !p.is_empty()) {
                let whole = slice.model.strip_suffix(UNNAMED_PROFILE).unwrap_or(&slice.model);
                slice.model = format!("{whole}{profile}");
                slice.memory = memory_of(profile);
            }
        }
    }
}

/// The major number of the driver: `NVRM version: … Kernel Module  580.65.06  …`.
fn driver(root: &Path) -> Option<u32> {
    let text = fs::read_to_string(root.join("proc/driver/nvidia/version")).ok()?;
    let words = text.lines().find(|line| line.starts_with("NVRM version:"))?.split_whitespace();
    words.filter_map(|word| word.split_once('.')?.0.parse().ok()).next()
}

/// A slice as `nvidia-smi` lists it.
struct ListedSlice {
    /// `1g.18gb`
    profile: String,
    uuid: String,
}

/// The UUID of each GPU, with its slices in order.
fn names(text: &str) -> Vec<(String, Vec<ListedSlice>)> {
    let mut gpus: Vec<(String, Vec<ListedSlice>)> = Vec::new();
    for line in text.lines() {
        let uuid = line.split_once("(UUID: ").and_then(|(_, rest)| rest.split_once(')'));
        match (uuid, gpus.last_mut()) {
            (Some((name, _)), Some((_, slices))) if name.starts_with("MIG-") => {
                let mut words = line.split_whitespace().skip_while(|word| *word != "MIG").skip(1);
                let profile = words.next().unwrap_or_default().to_owned();
                slices.push(ListedSlice { profile, uuid: name.to_owned() });
            }
            (Some((name, _)), _) if name.starts_with("GPU-") => {
                gpus.push((name.to_owned(), Vec::new()));
            }
            _ => {}
        }
    }
    gpus
}

/// The memory in a profile's name: `1g.18gb`, `1g.10gb+me`.
fn memory_of(profile: &str) -> Option<Bytes> {
    let (_, memory) = profile.split_once('.')?;
    let digits = memory.split_once("gb")?.0;
    digits.parse().ok().map(Bytes::from_gib)
}

#[cfg(test)]
mod tests {
    use super::super::detect_gpus;
    use super::super::tests::put;
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Two GPUs, the second in three slices.
    fn sliced(root: &Path, driver: &str) {
        put(root, "dev/nvidia0", "");
        put(root, "dev/nvidia1", "");
        for minor in [0, 1] {
            let text =
                format!("Model: \t NVIDIA\nGPU UUID: \t GPU-{minor}\nDevice Minor: \t {minor}\n");
            put(root, &format!("proc/driver/nvidia/gpus/0000:0{minor}:00.0/information"), &text);
        }
        let version = format!(
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Mon\nGCC version: 1.2\n"
        );
        put(root, "proc/driver/nvidia/version", &version);
        let right = |path: &str, minor: u32| {
            let text = format!("DeviceFileMinor: {minor}\nDeviceFileMode: 292\n");
            put(root, &format!("proc/driver/nvidia/capabilities/{path}/access"), &text);
        };
        right("mig/config", 1);
        for (instance, minor) in [(1, 12), (10, 93), (2, 21)] {
            right(&format!("gpu1/mig/gi{instance}"), minor);
            right(&format!("gpu1/mig/gi{instance}/ci0"), minor + 1);
        }
    }

    fn lister(root: &Path, text: &str) {
        put(
            root,
            NVIDIA_SMI_PATHS[2],
            &format!("#!/bin/sh\n[ \"$1\" = -L ] && /bin/cat <<END\n{text}END\n"),
        );
        let runs = fs::Permissions::from_mode(0o755);
        fs::set_permissions(root.join(NVIDIA_SMI_PATHS[2]), runs).expect("chmod");
    }

    #[test]
    fn gpu_in_mig_mode_is_replaced_by_its_slices() {
        let scratch = tempfile::tempdir().expect("scratch folder");
        let root = scratch.path();
        sliced(root, "580.65.06");
        let gpus = detect_gpus(root);
        let files: Vec<String> = gpus.iter().map(GpuDevice::files).collect();
        let slice = |gi: u32| {
            let right = |minor: u32| format!("/dev/nvidia-caps/nvidia-cap{minor}");
            format!("/dev/nvidia1,{},{}", right(gi), right(gi + 1))
        };
        assert_eq!(files, ["/dev/nvidia0".to_owned(), slice(12), slice(21), slice(93)]);
        assert_eq!(gpus[1].gres_type(), "nvidia_mig");
        assert_eq!(gpus[3].index, 3);
        assert!(gpus.iter().all(|gpu| gpu.uuid.is_none()), "nobody lists them");
    }

    #[test]
    fn slices_have_the_uuids_of_their_driver() {
        let uuids = |root: &Path| -> Vec<Option<String>> {
            detect_gpus(root).into_iter().map(|gpu| gpu.uuid).collect()
        };
        let text = |names: [&str; 3]| {
            std::iter::once(None).chain(names.map(|name| Some(name.to_owned()))).collect::<Vec<_>>()
        };
        let scratch = tempfile::tempdir().expect("scratch folder");
        let root = scratch.path();
        sliced(root, "460.32.03");
        assert_eq!(uuids(root), text(["MIG-GPU-1/1/0", "MIG-GPU-1/2/0", "MIG-GPU-1/10/0"]));
        put(
            root,
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n",
        );
        let slice =
            |at: u32, name: &str| format!("  MIG 1g.18gb     Device  {at}: (UUID: {name})\n");
        let list = format!(
            "GPU 0: NVIDIA H200 (UUID: GPU-0)\nGPU 1: NVIDIA H200 (UUID: GPU-1)\n{}{}{}",
            slice(0, "MIG-a"),
            slice(1, "MIG-b"),
            slice(2, "MIG-c")
        );
        lister(root, &list);
        assert_eq!(uuids(root), text(["MIG-a", "MIG-b", "MIG-c"]));
        let slice = &detect_gpus(root)[1];
        assert_eq!(slice.gres_type(), "nvidia_1g.18gb");
        assert_eq!(slice.memory, Some(Bytes::from_gib(18)));
        lister(root, &list.replace("  MIG 1g.18gb     Device  2: (UUID: MIG-c)\n", ""));
        assert_eq!(uuids(root), [None, None, None, None], "which is which is not known");
    }
}
