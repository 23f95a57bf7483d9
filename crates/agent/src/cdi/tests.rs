use super::*;
use model::limits::DeviceUnit;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

/// As the tool of a vendor writes them, with devices of every machine as GPUs: full and zero, and random as what both use.
const YAML: &str = "\
---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/random
  - path: /dev/not-there
  env:
  - VENDOR_VISIBLE_DEVICES=void
  hooks:
  - args: [nvidia-ctk, hook, update-ldcache]
    hookName: createContainer
    path: /usr/bin/nvidia-ctk
  mounts:
  - containerPath: /usr/lib/libvendor.so.1
    hostPath: /etc/passwd
    options: [ro, nosuid, nodev, rbind]
  - {containerPath: /usr/lib/libgone.so.1, hostPath: /not/there}
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/full
    - {path: /dev/gpu/card0, hostPath: /dev/urandom}
    env: [VENDOR_DEVICE=0]
  name: \"0\"
- containerEdits:
    deviceNodes:
    - path: /dev/zero
    env: [VENDOR_DEVICE=1]
  name: \"1\"
- containerEdits:
    deviceNodes:
    - path: /dev/full
    - path: /dev/zero
    env: [VENDOR_DEVICE=all]
  name: all
kind: vendor.com/gpu
";

fn limits(granted: &[&str]) -> DeviceLimits {
    let owned = |files: &[&str]| files.iter().map(|file| (*file).to_owned()).collect();
    let unit = DeviceUnit { name: "gpu".into(), index: Some(0), files: owned(granted) };
    let guarded = owned(&["/dev/full", "/dev/zero"]);
    DeviceLimits { granted: vec![unit], guarded, allowed: Vec::new() }
}

fn folder(files: &[(&str, &str)]) -> (tempfile::TempDir, Vec<String>) {
    let folder = tempfile::tempdir().expect("scratch folder");
    for (name, text) in files {
        fs::write(folder.path().join(name), text).expect("written");
    }
    let path = folder.path().to_str().expect("utf-8").to_owned();
    (folder, vec![path])
}

#[test]
fn device_that_was_granted_brings_what_its_file_says_and_no_other_does() {
    let (_kept, folders) = folder(&[("vendor.yaml", YAML)]);
    let found = DeviceEdits::find(&folders, Some(&limits(&["/dev/full"])));
    let nodes: Vec<(&str, &str)> =
        found.nodes.iter().map(|node| (node.host.as_str(), node.inside.as_str())).collect();
    let expected = [
        ("/dev/random", "/dev/random"),
        ("/dev/full", "/dev/full"),
        ("/dev/urandom", "/dev/gpu/card0"),
    ];
    assert_eq!(nodes, expected);
    assert_eq!(found.variables, ["VENDOR_VISIBLE_DEVICES=void", "VENDOR_DEVICE=0"]);
    let library = EditedMount {
        host: "/etc/passwd".into(),
        inside: "/usr/lib/libvendor.so.1".into(),
        read_only: true,
    };
    assert_eq!(found.mounts, [library]);
    for all in [Some(&limits(&["/dev/full", "/dev/zero"])), None] {
        // The device `all` is the sum of the others, each of which is applied.
        let found = DeviceEdits::find(&folders, all);
        assert_eq!(found.variables, ["VENDOR_VISIBLE_DEVICES=void", "VENDOR_DEVICE=1"]);
    }
    // A job without one has nothing of the file, and a device that is nobody's unit is granted to nobody.
    assert_eq!(DeviceEdits::find(&folders, Some(&limits(&[]))), DeviceEdits::default());
    assert_eq!(DeviceEdits::find(&folders, Some(&limits(&["/dev/null"]))), DeviceEdits::default());
}

#[test]
fn file_never_opens_a_device_that_is_anothers() {
    let hostile = YAML.replace("path: /dev/random", "path: /dev/zero");
    let (_kept, folders) = folder(&[("vendor.yaml", &hostile)]);
    let found = DeviceEdits::find(&folders, Some(&limits(&["/dev/full"])));
    assert!(found.nodes.iter().all(|node| node.host != "/dev/zero"), "{found:?}");
}

#[test]
fn file_opens_no_device_that_the_site_has_not_declared() {
    let hostile = YAML.replace("path: /dev/random", "path: /dev/zero");
    for text in [YAML, &hostile] {
        let (_kept, folders) = folder(&[("vendor.yaml", text)]);
        let declared = DeviceLimits { guarded: vec!["/dev/full".into()], ..limits(&["/dev/full"]) };
        let found = DeviceEdits::find(&folders, Some(&declared));
        assert!(found.nodes.iter().any(|node| node.host == "/dev/full"), "{found:?}");
        assert!(found.nodes.iter().all(|node| node.host != "/dev/zero"), "{found:?}");
        assert!(found.variables.contains(&"VENDOR_DEVICE=0".to_owned()), "{found:?}");
    }
}

#[test]
fn mount_of_a_path_that_a_user_could_have_put_there_is_left_out() {
    let planted = tempfile::tempdir().expect("scratch folder");
    let path = planted.path().join("library");
    fs::write(&path, "").expect("written");
    let text = YAML.replace("/etc/passwd", path.to_str().expect("utf-8"));
    let (_kept, folders) = folder(&[("vendor.yaml", &text)]);
    let mounts = || DeviceEdits::find(&folders, Some(&limits(&["/dev/full"]))).mounts.len();
    assert_eq!(mounts(), 1);
    fs::set_permissions(planted.path(), Permissions::from_mode(0o777)).expect("set");
    assert_eq!(mounts(), 0);
}

#[test]
fn later_folder_says_what_counts_of_a_device() {
    let text = |value: &str| {
        format!(
            r#"{{"cdiVersion": "0.6.0", "kind": "vendor.com/gpu", "devices": [{{"name": "0",
               "containerEdits": {{"deviceNodes": [{{"path": "/dev/full"}}], "env": ["OF={value}"]}}}}]}}"#
        )
    };
    let (_one, mut folders) = folder(&[("a.json", &text("etc"))]);
    let (_two, more) = folder(&[("b.json", &text("run")), ("c.json", &text("second"))]);
    folders.extend(more);
    folders.push("/not/there".into());
    let found = DeviceEdits::find(&folders, Some(&limits(&["/dev/full"])));
    assert_eq!(found.variables, ["OF=run"]);
    assert_eq!(faults(&folders), Vec::<String>::new());
}

#[test]
fn bad_file_is_one_line_and_not_used() {
    let start = "cdiVersion: 0.5.0\nkind: vendor.com/gpu\ndevices:\n";
    let deep = format!("{start}- {}", "[".repeat(64));
    let with = |edits: &str| format!("{start}- name: x\n  containerEdits: {edits}\n");
    let table = [
        ("".to_owned(), "it is empty"),
        ("a: [1\n".to_owned(), "line 2: "),
        ("a: &x 1\nb: *x\n".to_owned(), "line 1: an anchor or a tag"),
        (deep, "line 4: nested too deep"),
        ("kind: x/y\ndevices: []\n".to_owned(), "missing field `cdiVersion`"),
        ("kind: x/y\nkind: x/z\n".to_owned(), "line 2: a key that is given twice"),
        (start.replace("0.5.0", "7.0.0") + "  []\n", "cdiVersion \"7.0.0\": expected 0.x or 1.x"),
        (start.replace("vendor.com/gpu", "gpu") + "  []\n", "kind \"gpu\": expected VENDOR/CLASS"),
        (with("{env: [X]}"), "env \"X\": expected NAME=VALUE"),
        (with("{deviceNodes: [{path: dev/x}]}"), "path \"dev/x\": expected an absolute one"),
        (with("{deviceNodes: [{path: /etc/x}]}"), "expected a path below /dev"),
        (with("{mounts: [{hostPath: /x/../y, containerPath: /z}]}"), "without `..`"),
        (with("{mounts: [{hostPath: /x, containerPath: /proc/z}]}"), "expected a place outside"),
        (with("{mounts: [{hostPath: /x, containerPath: /}]}"), "expected a place outside"),
        (with("{mounts: [{hostPath: /x, containerPath: /run}]}"), "expected a place outside"),
        (with("{mounts: [{hostPath: /x, containerPath: //}]}"), "expected a place outside"),
        (with("{deviceNodes: [{path: /dev/}]}"), "expected a path below /dev"),
    ];
    for (text, expected) in table {
        let (_kept, folders) = folder(&[("bad.yaml", &text), ("good.yaml", YAML)]);
        let lines = faults(&folders);
        assert!(
            lines[0].contains("bad.yaml: ") && lines[0].contains(expected),
            "{text}: {lines:?}"
        );
        assert!(!lines[0].contains('\n') && lines[0].ends_with(": it is not used"), "{lines:?}");
        let missing = "good.yaml names 2 paths that are not on this machine, /dev/not-there first";
        assert!(lines[1].contains(missing) && lines.len() == 2, "{lines:?}");
        let found = DeviceEdits::find(&folders, Some(&limits(&["/dev/full"])));
        assert_eq!(found.nodes.len(), 3, "the good one is used");
    }
}

#[test]
fn files_beyond_the_bound_of_a_folder_are_one_line() {
    let names: Vec<String> = (0..FILES_MAX + 2).map(|i| format!("{i:03}.yaml")).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), YAML)).collect();
    let (_kept, folders) = folder(&files);
    let lines = faults(&folders);
    let of_folder: Vec<&String> = lines.iter().filter(|line| line.contains("CDI folder")).collect();
    let expected = "2 files from \"064.yaml\" on are not used: expected at most 64 in it";
    assert!(of_folder.len() == 1 && of_folder[0].contains(expected), "{of_folder:?}");
}

#[test]
fn file_that_others_could_have_written_is_not_used() {
    let (kept, folders) = folder(&[("vendor.yaml", YAML)]);
    let file = kept.path().join("vendor.yaml");
    let refused = || {
        assert_eq!(DeviceEdits::find(&folders, None), DeviceEdits::default());
        faults(&folders).join("\n")
    };
    fs::set_permissions(&file, Permissions::from_mode(0o666)).expect("a mode");
    assert!(refused().contains("expected a file of root's that nobody else can write to"));
    fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("a mode");
    assert_ne!(DeviceEdits::find(&folders, None), DeviceEdits::default());
    if Uid::effective().is_root() {
        std::os::unix::fs::chown(&file, Some(5), None).expect("given");
        assert!(refused().contains("expected a file of root's"));
        std::os::unix::fs::chown(&file, Some(0), None).expect("given");
    }
    fs::rename(&file, kept.path().join("real")).expect("moved");
    std::os::unix::fs::symlink("real", &file).expect("a link");
    assert!(refused().contains("vendor.yaml: "), "a link");
    fs::set_permissions(kept.path(), Permissions::from_mode(0o777)).expect("a mode");
    assert!(refused().contains("writable by other users"));
}

/// A machine of NVIDIA's with two GPUs, the second in two slices, whose files lead to devices that every machine has.
fn nvidia_machine() -> tempfile::TempDir {
    let scratch = tempfile::tempdir().expect("scratch folder");
    let root = scratch.path();
    driver_files::tests::driver(root, "usr/lib64");
    let right = |path: &str, minor: u32| {
        let path = format!("proc/driver/nvidia/capabilities/gpu1/mig/{path}/access");
        driver_files::tests::put(root, &path, format!("DeviceFileMinor: {minor}\n"));
    };
    for (instance, minor) in [("gi1", 12), ("gi2", 21)] {
        right(instance, minor);
        right(&format!("{instance}/ci0"), minor + 1);
    }
    fs::create_dir_all(root.join("dev/nvidia-caps")).expect("made");
    for (file, here) in [
        ("nvidia0", "full"),
        ("nvidia1", "zero"),
        ("nvidiactl", "random"),
        ("nvidia-uvm", "urandom"),
        ("nvidia-caps/nvidia-cap12", "tty"),
        ("nvidia-caps/nvidia-cap13", "ptmx"),
    ] {
        let here = format!("/dev/{here}");
        std::os::unix::fs::symlink(here, root.join("dev").join(file)).expect("a link");
    }
    scratch
}

#[test]
fn specification_of_nvidias_gpus_is_made_from_what_is_detected() {
    let machine = nvidia_machine();
    let made = nvidia::specification(machine.path()).expect("a driver and GPUs");
    let text = serde_json::to_string(&made).expect("written");
    let read = Specification::read(serde_json::from_str(&text).expect("JSON"));
    let read = read.expect("a file that would be taken");
    let nodes = |edits: &ContainerEdits| -> Vec<String> {
        edits.device_nodes.iter().map(|node| node.path.clone()).collect()
    };
    let devices: Vec<(&str, Vec<String>)> = read
        .devices
        .iter()
        .map(|device| (device.name.as_str(), nodes(&device.container_edits)))
        .collect();
    let slice = |first: u32| {
        let cap = |minor: u32| format!("/dev/nvidia-caps/nvidia-cap{minor}");
        vec!["/dev/nvidia1".to_owned(), cap(first), cap(first + 1)]
    };
    let whole = vec!["/dev/nvidia0".to_owned()];
    assert_eq!(devices, [("0", whole), ("1:0", slice(12)), ("1:1", slice(21))]);
    assert_eq!(read.kind, "nvidia.com/gpu");
    assert_eq!(nodes(&read.container_edits), ["/dev/nvidiactl", "/dev/nvidia-uvm"]);
    let mounts: Vec<(&str, bool)> = read
        .container_edits
        .mounts
        .iter()
        .map(|mount| (mount.container_path.as_str(), mount.is_read_only()))
        .collect();
    assert!(mounts.contains(&("/usr/local/nvidia/lib64/libcuda.so.1", true)), "{mounts:?}");
    assert!(mounts.contains(&("/usr/local/nvidia/bin/nvidia-smi", true)), "{mounts:?}");
    fs::remove_file(machine.path().join("sys/module/nvidia/version")).expect("removed");
    assert!(nvidia::specification(machine.path()).is_none(), "no module");
}

#[test]
fn own_specification_adds_the_driver_to_a_granted_gpu_and_opens_no_other() {
    let machine = nvidia_machine();
    let own = nvidia::specification(machine.path()).expect("a driver and GPUs");
    let edits = |limits: Option<&DeviceLimits>| {
        let mut found = DeviceEdits::default();
        found.add_own(&own, &Grant::of(limits));
        found
    };
    let inside = |found: &DeviceEdits| -> Vec<String> {
        found.nodes.iter().map(|node| node.inside.clone()).collect()
    };
    let found = edits(Some(&limits(&["/dev/full"])));
    assert_eq!(inside(&found), ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"]);
    assert!(found.has_driver && found.mounts.len() == 5, "{found:?}");
    // A slice is the job's with all its rights, and another of the same GPU is not.
    let found = edits(Some(&limits(&["/dev/zero", "/dev/tty", "/dev/ptmx"])));
    let caps = ["/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13"];
    assert_eq!(inside(&found)[2..], ["/dev/nvidia1", caps[0], caps[1]]);
    // A GPU in slices that the site declares whole brings the driver, and the rights to no slice.
    let found = edits(Some(&limits(&["/dev/zero"])));
    assert_eq!(inside(&found), ["/dev/nvidiactl", "/dev/nvidia-uvm"]);
    assert!(found.has_driver, "{found:?}");
    for none in [limits(&[]), limits(&["/dev/null"])] {
        assert_eq!(edits(Some(&none)), DeviceEdits::default());
    }
    // Where nobody limits devices, every one that is there.
    assert!(inside(&edits(None)).contains(&"/dev/nvidia0".to_owned()));
}

#[test]
fn file_of_the_vendors_toolkit_counts_before_the_own_specification() {
    let machine = nvidia_machine();
    let text = r#"{"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": [{"name": "0", "containerEdits": {
        "deviceNodes": [{"path": "/dev/nvidia0", "hostPath": "/dev/full"}],
        "mounts": [{"hostPath": "/etc/passwd", "containerPath": "/usr/local/nvidia/lib64/libcuda.so.1"}]}}]}"#;
    let (_kept, folders) = folder(&[("nvidia.json", text)]);
    let granted = limits(&["/dev/full"]);
    let mut found = DeviceEdits::find(&folders, Some(&granted));
    let own = nvidia::specification(machine.path()).expect("a driver and GPUs");
    found.add_own(&own, &Grant::of(Some(&granted)));
    let of = |inside: &str| {
        let mount = found.mounts.iter().filter(|mount| mount.inside.ends_with(inside));
        mount.map(|mount| mount.host.clone()).collect::<Vec<_>>()
    };
    assert_eq!(of("libcuda.so.1"), [PathBuf::from("/etc/passwd")]);
    assert_eq!(of("libnvidia-ml.so.580.1.2").len(), 1, "what the file lacks is added");
    assert_eq!(found.nodes[0].host, "/dev/full");
    assert_eq!(found.nodes.iter().filter(|node| node.inside == "/dev/nvidia0").count(), 1);
}
