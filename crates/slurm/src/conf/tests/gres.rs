//! gres.conf, and its agreement with `Gres=` of slurm.conf.

use std::path::Path;

use model::amount::Bytes;
use model::cpuset::CpuSet;
use model::node::{NodeConfig, NodeGres};

use super::{accepted, refused};
use crate::conf::keys::choices::{AutoDetect, GresFlag};
use crate::conf::{MemoryFiles, load_machine_gres};

/// The resources of the first node, as (name, kind, count, files, first index).
type Units = (String, Option<String>, u64, usize, u32);

fn units(gres: &[NodeGres]) -> Vec<Units> {
    let unit =
        |g: &NodeGres| (g.name.clone(), g.kind.clone(), g.count, g.files.len(), g.first_index);
    gres.iter().map(unit).collect()
}

fn unit(name: &str, kind: &str, count: u64, files: usize, first: u32) -> Units {
    (name.into(), (!kind.is_empty()).then(|| kind.into()), count, files, first)
}

#[test]
fn gres_conf_and_slurm_conf_together_give_the_devices_of_a_node() {
    // (Gres= of the node, gres.conf, what the node has)
    let table = [
        ("gpu:8", "", vec![unit("gpu", "", 8, 0, 0)]),
        (
            "gpu:h100:4,gpu:a100:2",
            "",
            vec![unit("gpu", "h100", 4, 0, 0), unit("gpu", "a100", 2, 0, 4)],
        ),
        (
            "gpu:h100:8",
            "Name=gpu Type=h100 File=/dev/nvidia[0-7]",
            vec![unit("gpu", "h100", 8, 8, 0)],
        ),
        ("gpu:h100:2", "Name=gpu File=/dev/nvidia[0-1]", vec![unit("gpu", "h100", 2, 2, 0)]),
        (
            "gpu:4",
            "Name=gpu Type=a File=/dev/nvidia0\nName=gpu Type=b File=/dev/nvidia[1-3]",
            vec![unit("gpu", "a", 1, 1, 0), unit("gpu", "b", 3, 3, 1)],
        ),
        ("fpga:2", "Name=gpu File=/dev/nvidia[0-1]", vec![unit("fpga", "", 2, 0, 0)]),
        (
            "gpu:1",
            "NodeName=n1 Name=gpu MultipleFiles=/dev/a,/dev/b",
            vec![unit("gpu", "", 1, 1, 0)],
        ),
        ("shard:8", "Name=shard Count=8 File=/dev/nvidia[0-1]", vec![unit("shard", "", 8, 2, 0)]),
        ("gpu:4", "AutoDetect=nvml\nName=gpu", vec![unit("gpu", "", 4, 0, 0)]),
        ("bw:4K", "NodeName=n1 Name=bw Count=4K Flags=CountOnly", vec![unit("bw", "", 4096, 0, 0)]),
        ("gpu:2", "NodeName=n2 Name=gpu File=/dev/nvidia0", vec![unit("gpu", "", 2, 0, 0)]),
    ];
    for (gres, file, expected) in table {
        let slurm = format!("NodeName=n1 CPUs=4 Gres={gres}\nNodeName=n2\n");
        let conf = accepted(&[("slurm.conf", &slurm), ("gres.conf", file)]);
        assert_eq!(units(&conf.slurm.nodes[0].config.gres), expected, "{gres} with {file}");
        assert!(conf.slurm.nodes[1].config.gres.is_empty());
    }
}

#[test]
fn cores_of_a_gres_line_become_cpus() {
    let slurm = "NodeName=n1 Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 Gres=gpu:2";
    let gres = "Name=gpu File=/dev/nvidia0 COREs=0-3\nName=gpu File=/dev/nvidia1 Cores=4-7";
    let conf = accepted(&[("slurm.conf", slurm), ("gres.conf", gres)]);
    let cores = |i: usize| conf.slurm.nodes[0].config.gres[i].cores.clone();
    assert_eq!(cores(0), Some(CpuSet::first(8)));
    assert_eq!(cores(1), Some((8..16).collect()));
}

#[test]
fn links_flags_and_autodetect_are_read() {
    let gres = "AutoDetect=nvml\nNodeName=n2 AutoDetect=off\n\
                Name=gpu File=/dev/nvidia0 Links=-1,16 Flags=nvidia_gpu_env";
    let slurm = "NodeName=n[1-2]\n";
    let conf = accepted(&[("slurm.conf", slurm), ("gres.conf", gres)]).gres;
    assert_eq!(conf.lines[0].links, [-1, 16]);
    assert_eq!(conf.lines[0].flags, [GresFlag::NvidiaGpuEnv]);
    assert_eq!(
        (conf.auto_detect("n1"), conf.auto_detect("n2")),
        (AutoDetect::Nvml, AutoDetect::Off)
    );
}

#[test]
fn autodetect_of_nrt_is_taken_and_finds_nothing() {
    let conf = accepted(&[("slurm.conf", "NodeName=n1\n"), ("gres.conf", "AutoDetect=nrt")]);
    assert_eq!(conf.gres.auto_detect("n1"), AutoDetect::Off);
    let told: Vec<String> = conf.notices.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["/c/gres.conf:1: AutoDetect=nrt: accepted; it has no effect here"]);
}

#[test]
fn flags_and_autodetect_choose_the_device_variables() {
    let table: [(&str, Option<&[&str]>); 6] = [
        ("Name=gpu File=/dev/nvidia0", None),
        ("Name=gpu File=/dev/a Flags=amd_gpu_env", Some(&["ROCR_VISIBLE_DEVICES"])),
        (
            "Name=gpu File=/dev/a Flags=intel_gpu_env,opencl_env",
            Some(&["ZE_AFFINITY_MASK", "GPU_DEVICE_ORDINAL"]),
        ),
        ("Name=gpu File=/dev/a Flags=no_gpu_env", Some(&[])),
        ("AutoDetect=nvml", Some(&["CUDA_VISIBLE_DEVICES"])),
        ("AutoDetect=rsmi\nName=gpu Flags=nvidia_gpu_env", Some(&["CUDA_VISIBLE_DEVICES"])),
    ];
    for (gres, expected) in table {
        let conf =
            accepted(&[("slurm.conf", "NodeName=n1 CPUs=4 Gres=gpu:1\n"), ("gres.conf", gres)]);
        let found = conf.slurm.nodes[0].config.gres[0].variables.clone();
        let expected = expected.map(|names| names.iter().map(|n| (*n).to_owned()).collect());
        assert_eq!(found, expected, "{gres}");
    }
}

#[test]
fn a_disagreement_of_the_files_names_both_places() {
    let slurm = "NodeName=n[1-2] CPUs=4 Gres=gpu:h100:8";
    let gres = "# devices\nNodeName=n[1-2] Name=gpu Type=h100 File=/dev/nvidia[0-3]";
    let said = refused(&[("slurm.conf", slurm), ("gres.conf", gres)]);
    assert_eq!(
        said,
        "/c/gres.conf:2: Name: \"gpu:h100:4\": makes 4 on \"n1\", but 8 by Gres=gpu:h100:8 at /c/slurm.conf:1"
    );
}

/// Such a file is that of whichever machine reads it: the nodes that it does not fit have a file of their own.
#[test]
fn a_line_without_nodes_is_not_held_to_nodes_that_have_something_else() {
    let slurm = "NodeName=n1 CPUs=4 Gres=gpu:2\nNodeName=n2 CPUs=4 Gres=gpu:h100:8\nNodeName=n3";
    let conf =
        accepted(&[("slurm.conf", slurm), ("gres.conf", "Name=gpu File=/dev/nvidia[0-1]\n")]);
    let nodes = &conf.slurm.nodes;
    assert_eq!(units(&nodes[0].config.gres), [unit("gpu", "", 2, 2, 0)]);
    assert_eq!(units(&nodes[1].config.gres), [unit("gpu", "h100", 8, 0, 0)]);
    assert!(nodes[2].config.gres.is_empty());
    let [notice] = &conf.notices[..] else { panic!("{:?}", conf.notices) };
    assert_eq!(
        notice.to_string(),
        "/c/gres.conf:1: gpu: makes 2 on \"n2\", but 8 by Gres=gpu:h100:8 at /c/slurm.conf:2; \
         without NodeName it is not for that node"
    );
}

#[test]
fn bad_lines_are_refused_in_one_line() {
    let table = [
        ("Name=gpu File=/dev/nvidia[0-3] Count=3", "Count: \"3\": expected 4"),
        ("Name=gpu File=nvidia0", "absolute paths"),
        ("Name=gpu File=/dev/nvidia[0-", "File"),
        ("Name=gpu File=/dev/nvidia[0-4000]", "at most 1024 files"),
        ("Name=gpu File=/dev/a MultipleFiles=/dev/b", "either File or MultipleFiles"),
        ("Name=gpu Count=4 Links=-1,4", "one device only"),
        ("Name=gpu File=/dev/a Links=x", "numbers of connections"),
        ("NodeName=n1 Name=gpu Count=4 Cores=0-99", "\"n1\" does not have; it has 4"),
        ("NodeName=n1 Name=gpu Type=a100 Count=4", "type a100 is not that of \"n1\""),
        ("File=/dev/nvidia0", "expected Name= on the line"),
        ("Name=gpu Fiel=/dev/nvidia0", "nearest is File"),
        ("Name=gpu Count=4 Flags=shiny", "\"shiny\" is none of"),
        ("AutoDetect=maybe", "expected one of off, nvml"),
        ("NodeName=n1 AutoDetect=nvml\nNodeName=n1 AutoDetect=rsmi", "another AutoDetect"),
    ];
    for (line, expected) in table {
        let slurm = "NodeName=n1 CPUs=4 Gres=gpu:h100:4";
        let said = refused(&[("slurm.conf", slurm), ("gres.conf", line)]);
        assert!(said.starts_with("/c/gres.conf:") && said.contains(expected), "{line}: {said}");
    }
}

#[test]
fn shards_are_divided_over_the_gpus_of_their_node() {
    let slurm = "NodeName=n1 CPUs=4 Gres=shard:6,gpu:h100:2,fpga:1";
    let gres = "Name=gpu Type=h100 File=/dev/nvidia0 Cores=0-1\n\
                Name=gpu Type=h100 File=/dev/nvidia1 Cores=2-3\n\
                Name=shard Count=2 File=/dev/nvidia1\nName=shard Count=4";
    let conf = accepted(&[("slurm.conf", slurm), ("gres.conf", gres)]);
    let found = &conf.slurm.nodes[0].config.gres;
    let expected = [
        unit("gpu", "h100", 1, 1, 0),
        unit("gpu", "h100", 1, 1, 1),
        unit("fpga", "", 1, 0, 0),
        unit("shard", "h100", 2, 1, 0),
        unit("shard", "h100", 2, 1, 2),
        unit("shard", "h100", 2, 1, 4),
    ];
    assert_eq!(units(found), expected);
    let shares: Vec<(Option<u32>, &str)> =
        found[3..].iter().map(|share| (share.share_of, share.files[0].as_str())).collect();
    let on = |gpu, file| (Some(gpu), file);
    assert_eq!(shares, [on(1, "/dev/nvidia1"), on(0, "/dev/nvidia0"), on(1, "/dev/nvidia1")]);
    assert_eq!(found[3].cores, Some((2..4).collect()));
}

#[test]
fn more_gpus_than_a_node_can_have_are_refused_in_one_line() {
    let by_count = "Count: \"UNLIMITED\": expected at most 4096 GPUs on a node";
    // (Gres= of the nodes, gres.conf, the only error)
    let table = [
        ("gpu:2,shard:4", "Name=gpu Count=UNLIMITED", format!("/c/gres.conf:1: {by_count}")),
        ("gpu:2", "\nNodeName=n2 Name=gpu Count=UNLIMITED", format!("/c/gres.conf:2: {by_count}")),
        (
            "gpu:4000000000,shard:4",
            "",
            "/c/slurm.conf:1: Gres: \"gpu:4000000000,shard:4\": expected at most 4096 GPUs on a node"
                .to_owned(),
        ),
        (
            "gpu:a:4096,gpu:b:1",
            "Name=gpu Count=8",
            "/c/slurm.conf:1: Gres: \"gpu:a:4096,gpu:b:1\": expected at most 4096 GPUs on a node"
                .to_owned(),
        ),
    ];
    for (gres, file, expected) in table {
        let slurm = format!("NodeName=n[1-2] CPUs=4 Gres={gres}");
        let said = refused(&[("slurm.conf", &slurm), ("gres.conf", file)]);
        assert_eq!(said, expected, "{gres} with {file}");
    }
    let most = accepted(&[("slurm.conf", "NodeName=n1 Gres=gpu:4096,shard:4096")]);
    assert_eq!(most.slurm.nodes[0].config.gres.len(), 4097);
    let other = accepted(&[("slurm.conf", "NodeName=n1 Gres=bandwidth:4000000000")]);
    assert_eq!(other.slurm.nodes[0].config.gres[0].count, 4_000_000_000);
}

#[test]
fn a_machines_own_file_gives_the_devices_of_its_nodes() {
    let text = "Name=gpu Type=a File=/dev/nvidia[0-1] Cores=0\nNodeName=n2 Name=gpu File=/dev/nvidia7\n\
                Name=gpu Type=b File=/dev/nvidia2\nName=fpga File=/dev/f\nAutoDetect=off\n";
    let files = MemoryFiles::default().with("/m/gres.conf", text);
    let conf = load_machine_gres(&files, Path::new("/m")).expect("a good file");
    let node = |name| NodeConfig::plain(name, 4, Bytes::from_gib(1));
    assert_eq!(
        units(&conf.of_machine(&node("n1"))),
        [unit("gpu", "a", 2, 2, 0), unit("gpu", "b", 1, 1, 2), unit("fpga", "", 1, 1, 0)]
    );
    assert_eq!(conf.of_machine(&node("n2"))[1].files, ["/dev/nvidia7"]);
    let bad = MemoryFiles::default().with("/m/gres.conf", "Name=gpu Fiel=/dev/x\n");
    let errors = load_machine_gres(&bad, Path::new("/m")).expect_err("an unknown key");
    assert!(errors[0].to_string().starts_with("/m/gres.conf:1"), "{}", errors[0]);
    let none = MemoryFiles::default();
    assert!(load_machine_gres(&none, Path::new("/m")).is_err(), "it was asked for");
}
