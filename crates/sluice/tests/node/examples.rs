//! Scripts and configurations with containers, as people bring them along: those of `data/examples`, and of the folder
//! `shared/examples` beside the project where there is one. Their images are served under their own names.

use super::containers::make_rootfs;
use super::registry::Registry;
use crate::harness::Cluster;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the examples ask for at most.
const CONF: &str = "\
ClusterName=test
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=node[1-2] CPUs=64 RealMemory=1000000 Gres=gpu:a100:8
PartitionName=main Nodes=node[1-2] Default=YES State=UP
";

/// Where the examples have their `.sif` files.
const SIF_FOLDER: &str = "/shared/images/";

fn examples() -> Vec<(PathBuf, String)> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node/data/examples");
    let brought = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/examples");
    let entries = [tests, brought].into_iter().flat_map(std::fs::read_dir).flatten().flatten();
    let read = |entry: std::fs::DirEntry| {
        let text = std::fs::read_to_string(entry.path()).expect("an example");
        (entry.path(), text)
    };
    let has_container = |text: &str| {
        text.contains("--container") || text.lines().any(|line| line.trim().starts_with("image:"))
    };
    entries.map(read).filter(|(_, text)| has_container(text)).collect()
}

/// A `.sif` of a root file system: the header, one descriptor of a primary system partition, and its squashfs.
fn make_sif(root: &Path, sif: &Path) {
    const TABLE: usize = 128;
    const DATA: usize = 4096;
    let squash = sif.with_extension("squashfs");
    let mut packed = Command::new("mksquashfs");
    packed.arg(root).arg(&squash).args([
        "-noappend",
        "-quiet",
        "-no-progress",
        "-no-recovery",
        "-all-root",
    ]);
    assert!(packed.status().expect("mksquashfs, which scripts/install brings").success());
    let data = std::fs::read(&squash).expect("a squashfs");
    let mut bytes = vec![0; DATA];
    bytes[32..42].copy_from_slice(b"SIF_MAGIC\0");
    bytes[88..96].copy_from_slice(&1u64.to_le_bytes());
    bytes[96..104].copy_from_slice(&(TABLE as u64).to_le_bytes());
    bytes[TABLE..TABLE + 4].copy_from_slice(&0x4004u32.to_le_bytes());
    bytes[TABLE + 4] = 1;
    bytes[TABLE + 17..TABLE + 25].copy_from_slice(&(DATA as u64).to_le_bytes());
    bytes[TABLE + 25..TABLE + 33].copy_from_slice(&(data.len() as u64).to_le_bytes());
    bytes[TABLE + 201] = 1;
    bytes[TABLE + 205] = 2;
    let architecture = if cfg!(target_arch = "aarch64") { b"04" } else { b"02" };
    bytes[TABLE + 209..TABLE + 211].copy_from_slice(architecture);
    bytes.extend_from_slice(&data);
    std::fs::write(sif, bytes).expect("written");
}

#[test]
fn root_examples_with_containers_run_as_they_are_brought() {
    let registry = Registry::start();
    let made = tempfile::tempdir().expect("a folder");
    let root = made.path().join("rootfs");
    make_rootfs(&root);
    let programs = [
        // Plays the interpreter of the images.
        ("python", "echo \"python of $(cat /etc/release): $*\""),
        // The scripts begin with `#!/bin/bash`.
        ("bash", "exec sh \"$@\""),
    ];
    for (name, line) in programs {
        let path = root.join("bin").join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{line}\n")).expect("written");
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("chmod");
    }
    // As those images have it: an empty folder, for the repository too.
    std::fs::create_dir(root.join("workspace")).expect("made");
    let settings = r#"{"Env":["PATH=/bin"],"WorkingDir":"/workspace"}"#;
    registry.push("pytorch/pytorch", "2.0.0-cuda11.8-cudnn8-runtime", &root, settings);
    registry.push("nvidia/pytorch", "24.01-py3", &root, settings);

    let cluster = Cluster::folder(CONF);
    let address = &registry.address;
    cluster.write_conf(
        "sluice.toml",
        &format!(
            "[containers]\ninsecure_registries = ['{address}']\n[containers.mirrors]\n\
             'docker.io' = ['{address}']\n'nvcr.io' = ['{address}']\n"
        ),
    );
    cluster.start();
    cluster.sluice(&["secret", "set", "nvidia_ngc_api_key", "hush"]).ok();
    let images = cluster.path("work/images");
    std::fs::create_dir(&images).expect("made");
    cluster.write("train.py", "");
    // `repos: [.]` needs a branch that the node can clone.
    let origin = cluster.path("origin.git").display().to_string();
    let made = cluster.shell(&format!(
        "set -e; export HOME=$PWD; git init -q --bare -b main {origin}; git init -q -b main .; \
         echo images > .git/info/exclude; \
         git config user.email ann@x; git config user.name Ann; git add train.py; git commit -qm code; \
         git remote add origin file://{origin}; git push -q -u origin main"
    ));
    made.ok();
    let examples = examples();
    assert!(examples.len() >= 4, "{examples:?}");
    for (path, text) in examples {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let text = text.replace(SIF_FOLDER, &format!("{}/", images.display()));
        if let Some(sif) = text.lines().find_map(|line| line.split_once("--container=/")) {
            make_sif(&root, Path::new(&format!("/{}", sif.1)));
        }
        cluster.write(&name, &text);
        let output = if name.ends_with(".sbatch") {
            // The partitions that they name are the sites' own.
            let job = cluster.submit(&["-p", "main", "-o", "out.txt", &name]);
            assert_eq!(
                cluster.await_end(job),
                "COMPLETED|0:0",
                "{name}: {}",
                cluster.read("out.txt")
            );
            cluster.read("out.txt")
        } else {
            let said = cluster.sluice(&["apply", "-y", "-f", &name]);
            assert_eq!(said.code, 0, "{name}: {}{}", said.stdout, said.stderr);
            said.stdout
        };
        let ran = "python of made on the spot: ";
        assert!(output.contains(ran), "{name}: {output}");
    }
    super::containers::assert_nothing_is_left(&cluster);
}
