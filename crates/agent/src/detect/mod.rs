//! Detects the machine's hardware: processors, memory, disk and GPUs, and prints it as a `NodeName` line.

mod cpu;
pub(crate) mod cpu_map;
pub(crate) mod gpu;
mod memory;

use crate::gpu_monitor::child;
use std::collections::BTreeSet;
use std::path::Path;

use model::cpuset::CpuSet;
use nix::sys::statvfs::statvfs;
use nix::sys::utsname::uname;

use cpu::parse_cpu_list;
pub use cpu::{Cpu, CpuTopology};
pub use gpu::{GpuDevice, Vendor, detect_gpus};

#[derive(Debug, thiserror::Error)]
pub enum DetectError {
    #[error("cannot read {path}: {source}")]
    Read { path: String, source: std::io::Error },
    #[error("{path} holds {value:?}; expected {expected}")]
    Content { path: String, value: String, expected: &'static str },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Without its domain, as Slurm names a node.
    pub hostname: String,
    /// Processors that this process may use, hardware threads counted singly.
    pub cpus: u32,
    pub boards: u32,
    pub sockets: u32,
    pub cores_per_socket: u32,
    pub threads_per_core: u32,
    pub real_memory_mb: u64,
    /// The file system of `/tmp`.
    pub tmp_disk_mb: u64,
    pub gpus: Vec<GpuDevice>,
    pub arch: String,
    /// As `scontrol show node` has it: kernel name, release and version.
    pub os: String,
    /// Seconds since 1970.
    pub boot_time: u64,
    /// By socket, core and thread: the order in which a node's cores are numbered.
    pub cpu_list: Vec<Cpu>,
}

impl Machine {
    pub fn detect() -> Result<Machine, DetectError> {
        Machine::detect_under(Path::new("/"), &gpu::root())
    }

    /// As [`Machine::detect`], with what the library of the GPUs' vendor says of them. Where it fails, the machine is what
    /// `/proc` and `/sys` show, and the reason is returned.
    pub fn detect_with_libraries() -> Result<(Machine, Option<String>), DetectError> {
        let mut machine = Machine::detect()?;
        Ok(match child::read_once() {
            Ok(readings) => {
                gpu::add_readings(&mut machine.gpus, &readings);
                (machine, None)
            }
            Err(why) => (machine, Some(why)),
        })
    }

    /// Reads `/proc`, `/sys` and `/dev` below `root`, those of GPUs below `gpu_root`; a test may fill both.
    pub fn detect_under(root: &Path, gpu_root: &Path) -> Result<Machine, DetectError> {
        let topology = CpuTopology::read(root)?;
        let system = uname().map_err(|errno| DetectError::Read {
            path: "the system's name (uname)".into(),
            source: errno.into(),
        })?;
        let text = |word: &std::ffi::OsStr| word.to_string_lossy().into_owned();
        let hostname = text(system.nodename());
        Ok(Machine {
            hostname: hostname.split('.').next().unwrap_or_default().to_owned(),
            cpus: topology.cpus.len() as u32,
            boards: 1,
            sockets: topology.sockets,
            cores_per_socket: topology.cores_per_socket,
            threads_per_core: topology.threads_per_core,
            real_memory_mb: memory::total_mb(root)?,
            tmp_disk_mb: disk_mb(&root.join("tmp")),
            gpus: detect_gpus(gpu_root),
            arch: text(system.machine()),
            os: [system.sysname(), system.release(), system.version()].map(text).join(" "),
            boot_time: memory::boot_time(root)?,
            cpu_list: topology.cpus,
        })
    }
}

impl Machine {
    /// The variables that tell a process of its GPUs, where all are of vendors that have one; `None` is the usual ones.
    pub fn gpu_variables(&self) -> Option<Vec<String>> {
        let names: Option<BTreeSet<&str>> =
            self.gpus.iter().map(|gpu| gpu.vendor.variable()).collect();
        names
            .filter(|names| !names.is_empty())
            .map(|names| names.into_iter().map(str::to_owned).collect())
    }

    /// The CPUs near a device, counted by socket, core and thread as a node counts its own. `None` if no CPU is nearer
    /// than others.
    pub fn cpus_near(&self, gpu: &GpuDevice) -> Option<CpuSet> {
        let kernel = parse_cpu_list(gpu.cpus.as_deref()?)?;
        let is_near = |cpu: &Cpu| kernel.contains(cpu.id);
        let near = (0..).zip(&self.cpu_list).filter(|(_, cpu)| is_near(cpu));
        let near: CpuSet = near.map(|(id, _)| id).collect();
        let some = 1..self.cpu_list.len();
        some.contains(&(near.len() as usize)).then_some(near)
    }
}

/// Size of the file system at `path`; a folder that is not there has no disk.
fn disk_mb(path: &Path) -> u64 {
    statvfs(path).map_or(0, |disk| (disk.blocks() * disk.fragment_size()) >> 20)
}

/// The machine as one line of slurm.conf, in the words of `slurmd -C`.
pub fn node_config_line(machine: &Machine) -> String {
    let gres = gres_words(&machine.gpus);
    let disk = Some(machine.tmp_disk_mb).filter(|mib| *mib > 0);
    format!(
        "NodeName={} CPUs={} Boards={} SocketsPerBoard={} CoresPerSocket={} ThreadsPerCore={} \
         RealMemory={}{}{}{gres}",
        machine.hostname,
        machine.cpus,
        machine.boards,
        machine.sockets / machine.boards.max(1),
        machine.cores_per_socket,
        machine.threads_per_core,
        machine.real_memory_mb,
        disk.map(|mib| format!(" TmpDisk={mib}")).unwrap_or_default(),
        if gres.is_empty() { "" } else { " Gres=" },
    )
}

/// The machine's GPUs as lines of gres.conf, one each.
pub fn gres_config_lines(machine: &Machine) -> Vec<String> {
    let line = |gpu: &GpuDevice| {
        let files = gpu.files();
        let key = if files.contains(',') { "MultipleFiles" } else { "File" };
        let mut line = format!("Name=gpu Type={} {key}={files}", gpu.gres_type());
        if let Some(cpus) = machine.cpus_near(gpu) {
            line.push_str(&format!(" Cores={cpus}"));
        }
        if !gpu.links.is_empty() {
            let links: Vec<String> = gpu.links.iter().map(i32::to_string).collect();
            line.push_str(&format!(" Links={}", links.join(",")));
        }
        line
    };
    machine.gpus.iter().map(line).collect()
}

/// What was found of each GPU that no line of a configuration file has, as comments.
pub fn gpu_comment_lines(machine: &Machine) -> Vec<String> {
    let line = |gpu: &GpuDevice| {
        let memory = gpu.memory.map(|memory| format!("{}M", memory.mib_floor()));
        let id = gpu.uuid.clone().or_else(|| gpu.unique_id.clone());
        let known = [Some(gpu.model.clone()), gpu.pci.clone(), id, memory];
        let words: Vec<String> = known.into_iter().flatten().collect();
        format!("# GPU {}: {}", gpu.index, words.join(", "))
    };
    machine.gpus.iter().map(line).collect()
}

/// `gpu:TYPE:COUNT` for each model, in order of first appearance.
fn gres_words(gpus: &[GpuDevice]) -> String {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for gpu in gpus {
        let kind = gpu.gres_type();
        match counts.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count += 1,
            None => counts.push((kind, 1)),
        }
    }
    let words: Vec<String> =
        counts.iter().map(|(kind, count)| format!("gpu:{kind}:{count}")).collect();
    words.join(",")
}

/// The text of a small file below `root`.
fn read_under(root: &Path, path: &str) -> Result<String, DetectError> {
    std::fs::read_to_string(root.join(path))
        .map_err(|source| DetectError::Read { path: format!("/{path}"), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine {
            hostname: "vm".into(),
            cpus: 2,
            boards: 1,
            sockets: 1,
            cores_per_socket: 2,
            threads_per_core: 1,
            real_memory_mb: 24104,
            tmp_disk_mb: 1,
            gpus: Vec::new(),
            arch: "x86_64".into(),
            os: "Linux".into(),
            boot_time: 1000,
            cpu_list: Vec::new(),
        }
    }

    fn test_gpu(model: &str) -> GpuDevice {
        GpuDevice {
            index: 0,
            vendor: Vendor::Nvidia,
            model: model.into(),
            path: "/dev/nvidia0".into(),
            uuid: None,
            unique_id: None,
            pci: None,
            capabilities: Vec::new(),
            minor: 0,
            numa_node: None,
            cpus: None,
            memory: None,
            compute_capability: None,
            links: Vec::new(),
        }
    }

    #[test]
    fn node_config_line_is_that_of_slurmd_and_has_the_local_disk() {
        let expected = "NodeName=vm CPUs=2 Boards=1 SocketsPerBoard=1 CoresPerSocket=2 \
                        ThreadsPerCore=1 RealMemory=24104";
        assert_eq!(node_config_line(&Machine { tmp_disk_mb: 0, ..machine() }), expected);
        let expected = format!("{expected} TmpDisk=1");
        assert_eq!(node_config_line(&machine()), expected);
        let gpus = ["NVIDIA H200", "Tesla T4", "NVIDIA H200"].map(test_gpu).to_vec();
        let with = Machine { gpus, ..machine() };
        let expected = format!("{expected} Gres=gpu:nvidia_h200:2,gpu:tesla_t4:1");
        assert_eq!(node_config_line(&with), expected);
    }

    #[test]
    fn gpus_are_lines_of_gres_conf() {
        let linked = GpuDevice { links: vec![-1, 18], ..test_gpu("NVIDIA H200") };
        let slice = GpuDevice {
            capabilities: vec!["/dev/nvidia-caps/nvidia-cap12".into()],
            ..test_gpu("NVIDIA H200 MIG")
        };
        let machine = Machine { gpus: vec![linked, slice], ..machine() };
        let expected = [
            "Name=gpu Type=nvidia_h200 File=/dev/nvidia0 Links=-1,18",
            "Name=gpu Type=nvidia_h200_mig MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap12",
        ];
        assert_eq!(gres_config_lines(&machine), expected);
    }

    #[test]
    fn gpus_of_vendors_with_a_variable_of_their_own_are_told_by_it_alone() {
        let of = |vendors: &[Vendor]| {
            let gpu = |vendor: &Vendor| GpuDevice { vendor: *vendor, ..test_gpu("x") };
            Machine { gpus: vendors.iter().map(gpu).collect(), ..machine() }.gpu_variables()
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[Vendor::Amd, Vendor::Amd]), Some(vec!["ROCR_VISIBLE_DEVICES".to_owned()]));
        assert_eq!(of(&[Vendor::Intel]), Some(vec!["ZE_AFFINITY_MASK".to_owned()]));
        assert_eq!(of(&[Vendor::Nvidia, Vendor::Amd]), None, "the usual ones are for both");
    }

    #[test]
    fn cpus_near_a_gpu_are_counted_as_the_node_counts_them() {
        // Two sockets of a core of two threads, whose second threads have the numbers after all first ones.
        let cpu = |id, socket, thread| Cpu { id, socket, core: 0, thread, numa_node: None };
        let cpu_list = vec![cpu(0, 0, 0), cpu(2, 0, 1), cpu(1, 1, 0), cpu(3, 1, 1)];
        let machine = Machine { cpu_list, ..machine() };
        let near = |cpus: Option<&str>| {
            let gpu = GpuDevice { cpus: cpus.map(str::to_owned), ..test_gpu("NVIDIA H200") };
            machine.cpus_near(&gpu).map(|set| set.to_string())
        };
        assert_eq!(near(Some("1,3")).as_deref(), Some("2-3"));
        assert_eq!(near(Some("0,2")).as_deref(), Some("0-1"));
        for all_or_none in [Some("0-3"), Some("8-9"), Some(""), Some("x"), None] {
            assert_eq!(near(all_or_none), None, "{all_or_none:?}");
        }
    }

    #[test]
    fn this_machine_is_detected() {
        let found = Machine::detect().expect("detect");
        assert!(!found.hostname.is_empty() && !found.hostname.contains('.'));
        assert!(found.cpus >= 1 && found.cpus as usize == found.cpu_list.len());
        assert!(found.sockets * found.cores_per_socket * found.threads_per_core >= found.cpus);
        assert!(found.real_memory_mb > 0 && found.tmp_disk_mb > 0 && found.boot_time > 0);
    }
}
