//! Devices of jobs on machines that are played by links to devices of this one.

use super::*;
use model::limits::DeviceUnit;

const HOST: DeviceRoot<'static> = DeviceRoot::HOST;

/// A root folder whose device files are links to devices of this machine.
fn machine(devices: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("scratch folder");
    for (path, here) in devices {
        let path = root.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().expect("a folder")).expect("mkdir");
        std::os::unix::fs::symlink(here, path).expect("a link");
    }
    root
}

const NULL: DeviceRule = DeviceRule::char(1, Some(3));
const ZERO: DeviceRule = DeviceRule::char(1, Some(5));
const FULL: DeviceRule = DeviceRule::char(1, Some(7));
const RANDOM: DeviceRule = DeviceRule::char(1, Some(8));

fn limits(granted: &[&str], guarded: &[&str]) -> DeviceLimits {
    let owned = |files: &[&str]| files.iter().map(|file| (*file).to_owned()).collect();
    let unit = DeviceUnit { name: "gpu".into(), index: Some(0), files: owned(granted) };
    DeviceLimits { granted: vec![unit], guarded: owned(guarded), allowed: Vec::new() }
}

#[test]
fn granted_devices_are_allowed_and_guarded_ones_are_not() {
    let (null, full) = (DeviceRule::char(1, Some(3)), DeviceRule::char(1, Some(7)));
    let both = ["/dev/null", "/dev/full", "/dev/not-there"];
    let rules = HOST.rules(&limits(&["/dev/full"], &both), "", &[]).expect("a device");
    assert!(rules.contains(&full) && !rules.contains(&null), "{rules:?}");
    assert!(rules.contains(&DeviceRule::char(136, None)), "terminals are everybody's");
    let none = HOST.rules(&limits(&[], &[]), "", &[]).expect("no device");
    assert_eq!(none, STANDARD);
}

#[test]
fn file_that_is_no_device_is_an_error() {
    let scratch = tempfile::tempdir().expect("scratch folder");
    let plain = scratch.path().join("plain");
    fs::write(&plain, "").expect("write");
    let plain = plain.to_str().expect("utf-8");
    let line = HOST.rules(&limits(&[plain], &[plain]), "", &[]).expect_err("refused");
    assert_eq!(line, format!("File={plain} is not a device: gres.conf must name a device file"));
    let gone = "/dev/not-there";
    let line = HOST.rules(&limits(&[gone], &[gone]), "", &[]).expect_err("refused");
    assert!(line.contains(gone) && line.contains("No such file"), "{line}");
    assert_eq!(not_devices(["/dev/null", plain].into_iter()).len(), 1);
}

#[test]
fn nvidia_gpu_brings_its_drivers_control_files() {
    let majors = "Character devices:\n  1 mem\n195 nvidia\n238 nvidia-uvm\n\nBlock devices:\n  7 loop\n239 nvidia-uvm\n";
    assert_eq!(major_of(majors, "nvidia-uvm"), Some(238));
    assert_eq!(major_of(majors, "loop"), None, "a block device");
    let needed = HOST.control_devices("/dev/nvidia3", majors);
    let (control, uvm) = (DeviceRule::char(195, Some(255)), DeviceRule::char(238, None));
    assert!(needed.contains(&control) && needed.contains(&uvm), "{needed:?}");
    assert_eq!(HOST.control_devices("/dev/fpga0", majors), []);
}

#[test]
fn guarded_fabric_is_not_shared() {
    let port = DeviceRule::char(1, Some(7));
    let none = limits(&[], &[]);
    assert!(HOST.rules(&none, "", &[port]).expect("no device").contains(&port));
    let guarded = limits(&[], &["/dev/full"]);
    assert!(!HOST.rules(&guarded, "", &[port]).expect("no device").contains(&port));
}

#[test]
fn site_may_allow_further_devices_for_every_job() {
    let full = DeviceRule::char(1, Some(7));
    assert_eq!(HOST.matching_rules(&["/dev/full", "/dev/not-there"]), [full]);
    assert!(
        HOST.matching_rules(&["/dev/ful*"]).contains(&full)
            && HOST.matching_rules(&["/dev/f*l"]).contains(&full)
    );
    assert!(
        !HOST.matching_rules(&["/dev/z*"]).contains(&full)
            && HOST.matching_rules(&["/not-there/*"]).is_empty()
    );
    let site = DeviceLimits { allowed: vec!["/dev/mem".into()], ..limits(&[], &[]) };
    let scope = DeviceScope { of_several_nodes: false, cdi: &[] };
    let rules = allowed(&site, scope).expect("no device");
    assert_eq!(rules.contains(&DeviceRule::char(1, Some(1))), Path::new("/dev/mem").exists());
}

#[test]
fn mig_slice_opens_its_own_capabilities_only() {
    let cap = |n: u32| format!("/dev/nvidia-caps/nvidia-cap{n}");
    let root = machine(&[
        ("/dev/nvidia0", "/dev/null"),
        (&cap(12), "/dev/zero"),
        (&cap(13), "/dev/full"),
        (&cap(21), "/dev/random"),
        (&cap(22), "/dev/random"),
    ]);
    let machine = DeviceRoot(root.path().to_str().expect("utf-8"));
    let (own, others) = ([cap(12), cap(13)], [cap(21), cap(22)]);
    let granted = ["/dev/nvidia0", &own[0], &own[1]];
    let guarded = ["/dev/nvidia0", &own[0], &own[1], &others[0], &others[1]];
    let rules = machine.allowed(&limits(&granted, &guarded), false).expect("devices");
    assert!([NULL, ZERO, FULL].iter().all(|rule| rules.contains(rule)), "{rules:?}");
    assert!(!rules.contains(&RANDOM), "the rights to another slice: {rules:?}");
    assert!(rules.contains(&DeviceRule::char(195, Some(255))), "the control device: {rules:?}");
}

#[test]
fn amd_render_node_brings_the_compute_driver_and_intels_does_not() {
    let (amd, intel) = ("/dev/dri/renderD128", "/dev/dri/renderD129");
    let root = machine(&[(amd, "/dev/null"), (intel, "/dev/random"), ("/dev/kfd", "/dev/full")]);
    let machine = DeviceRoot(root.path().to_str().expect("utf-8"));
    let of = |file| machine.allowed(&limits(&[file], &[amd, intel]), false).expect("devices");
    let rules = of(amd);
    assert!(rules.contains(&NULL) && rules.contains(&FULL) && !rules.contains(&RANDOM));
    let rules = of(intel);
    assert!(rules.contains(&RANDOM) && !rules.contains(&NULL));
    let none = machine.allowed(&limits(&[], &[amd, intel]), true).expect("devices");
    assert!(!none.contains(&RANDOM) && !none.contains(&NULL));
    let without = machine_without_compute();
    let machine = DeviceRoot(without.path().to_str().expect("utf-8"));
    let rules = machine.allowed(&limits(&[intel], &[intel, "/dev/kfd"]), false);
    assert!(rules.expect("devices").contains(&RANDOM), "Intel's needs no other");
}

#[test]
fn device_of_vfio_and_gaudi_bring_the_files_that_control_them() {
    let (tpu, of_vfio) = ("/dev/vfio/11", "/dev/vfio/vfio");
    let (gaudi, of_gaudi) = ("/dev/accel/accel0", "/dev/accel/accel_controlD0");
    let root = machine(&[
        (tpu, "/dev/null"),
        (of_vfio, "/dev/full"),
        (gaudi, "/dev/zero"),
        (of_gaudi, "/dev/random"),
    ]);
    let machine = DeviceRoot(root.path().to_str().expect("utf-8"));
    // All are guarded, because every job may open what plays them.
    let all = [tpu, of_vfio, gaudi, of_gaudi];
    let of = |file| machine.allowed(&limits(&[file], &all), false).expect("devices");
    let rules = of(tpu);
    assert!(rules.contains(&NULL) && rules.contains(&FULL), "{rules:?}");
    assert!(!rules.contains(&ZERO) && !rules.contains(&RANDOM), "{rules:?}");
    let rules = of(gaudi);
    assert!(rules.contains(&ZERO) && rules.contains(&RANDOM), "{rules:?}");
    assert!(!rules.contains(&NULL) && !rules.contains(&FULL), "{rules:?}");
}

fn machine_without_compute() -> tempfile::TempDir {
    machine(&[("/dev/dri/renderD129", "/dev/random")])
}

#[test]
fn fabric_is_open_to_jobs_of_several_nodes_only() {
    let root = machine(&[
        ("/dev/infiniband/uverbs0", "/dev/null"),
        ("/dev/infiniband/rdma_cm", "/dev/zero"),
        ("/dev/hfi1_0", "/dev/random"),
    ]);
    let machine = DeviceRoot(root.path().to_str().expect("utf-8"));
    assert!(machine.has_fabric());
    // All are guarded, because some are devices that every job may open.
    let all = ["/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm", "/dev/hfi1_0"];
    assert_eq!(machine.matching_rules(&FABRIC).len(), all.len());
    let alone = machine.allowed(&limits(&[], &all), true).expect("no device");
    assert!(!alone.contains(&NULL) && !alone.contains(&RANDOM), "granted singly: {alone:?}");
    let (block, bare) = ("/dev/cxi0", machine_with_port());
    let machine = DeviceRoot(bare.path().to_str().expect("utf-8"));
    let port = machine.device(block).expect("a device");
    let of = |several| machine.allowed(&limits(&[], &[]), several).expect("no device");
    assert!(of(true).contains(&port) && !of(false).contains(&port));
    let without = super::tests::machine(&[("/dev/infiniband/rdma_cm", "/dev/zero")]);
    assert!(!DeviceRoot(without.path().to_str().expect("utf-8")).has_fabric(), "no port");
}

/// Its port links to the kernel's log, a device that is not open by default.
fn machine_with_port() -> tempfile::TempDir {
    machine(&[("/dev/cxi0", "/dev/kmsg")])
}
