//! Sockets, cores, threads and NUMA nodes of the processors that this process may use.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use model::cpuset::CpuSet;

use super::{DetectError, read_under};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// The kernel's number.
    pub id: u32,
    /// Counted from zero, without gaps.
    pub socket: u32,
    /// Within the socket, counted from zero.
    pub core: u32,
    /// Within the core, counted from zero.
    pub thread: u32,
    pub numa_node: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuTopology {
    pub sockets: u32,
    /// On an uneven machine, the largest.
    pub cores_per_socket: u32,
    pub threads_per_core: u32,
    /// By socket, core and thread.
    pub cpus: Vec<Cpu>,
}

impl CpuTopology {
    pub fn read(root: &Path) -> Result<CpuTopology, DetectError> {
        let online = read_list(root, "sys/devices/system/cpu/online")?;
        let allowed = allowed_cpus(root)?;
        let usable = online.iter().filter(|id| allowed.contains(*id));
        let numa = numa_nodes(root);
        // Socket, then core (named by its first thread), then threads: the map's order is the numbering.
        let mut sockets: BTreeMap<u32, BTreeMap<u32, Vec<u32>>> = BTreeMap::new();
        for id in usable {
            let (package, core) = place_of(root, id);
            sockets.entry(package).or_default().entry(core).or_default().push(id);
        }
        let mut cpus = Vec::new();
        for (socket, cores) in (0..).zip(sockets.values()) {
            for (core, threads) in (0..).zip(cores.values()) {
                for (thread, id) in (0..).zip(threads) {
                    let numa_node = numa.get(id).copied();
                    cpus.push(Cpu { id: *id, socket, core, thread, numa_node });
                }
            }
        }
        let count = |most: Option<u32>| most.map_or(0, |index| index + 1);
        Ok(CpuTopology {
            sockets: count(cpus.iter().map(|cpu| cpu.socket).max()),
            cores_per_socket: count(cpus.iter().map(|cpu| cpu.core).max()),
            threads_per_core: count(cpus.iter().map(|cpu| cpu.thread).max()),
            cpus,
        })
    }
}

/// The package of a processor, and the first thread of its core: `core_id` alone repeats across dies.
/// A kernel that does not say has one package, and every processor is a core.
fn place_of(root: &Path, id: u32) -> (u32, u32) {
    let file = |name: &str| {
        let path = format!("sys/devices/system/cpu/cpu{id}/topology/{name}");
        fs::read_to_string(root.join(path)).ok()
    };
    let package = file("physical_package_id").and_then(|text| text.trim().parse().ok());
    let siblings = file("core_cpus_list").or_else(|| file("thread_siblings_list"));
    let first = siblings.and_then(|text| parse_cpu_list(text.trim())?.iter().next());
    (package.unwrap_or(0), first.unwrap_or(id))
}

/// The processors that this process's cpuset and affinity allow.
fn allowed_cpus(root: &Path) -> Result<CpuSet, DetectError> {
    let path = "proc/self/status";
    let text = read_under(root, path)?;
    let line = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let list = line.unwrap_or_default().trim();
    parse_cpu_list(list).ok_or_else(|| bad_list(path, list))
}

fn numa_nodes(root: &Path) -> BTreeMap<u32, u32> {
    let mut nodes = BTreeMap::new();
    let Ok(entries) = fs::read_dir(root.join("sys/devices/system/node")) else { return nodes };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("node")?.parse().ok());
        let list = fs::read_to_string(entry.path().join("cpulist")).ok();
        if let (Some(node), Some(list)) = (number, list) {
            let cpus = parse_cpu_list(list.trim()).unwrap_or_default();
            nodes.extend(cpus.iter().map(|id| (id, node)));
        }
    }
    nodes
}

fn read_list(root: &Path, path: &str) -> Result<CpuSet, DetectError> {
    let text = read_under(root, path)?;
    parse_cpu_list(text.trim()).ok_or_else(|| bad_list(path, text.trim()))
}

fn bad_list(path: &str, value: &str) -> DetectError {
    let expected = "a list of processors such as 0-3,8";
    DetectError::Content { path: format!("/{path}"), value: value.to_owned(), expected }
}

/// The kernel's list form, `0-3,8`; empty text is the empty set.
pub(super) fn parse_cpu_list(text: &str) -> Option<CpuSet> {
    // `CpuSet` passes over empty words; the kernel writes none, so a list with one is damaged.
    let whole = text.is_empty() || text.split(',').all(|word| !word.is_empty());
    whole.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_parse_and_print() {
        for (text, ids) in [
            ("", Vec::<u32>::new()),
            ("0", vec![0]),
            ("0-3,8", vec![0, 1, 2, 3, 8]),
            ("1,3,5-6", vec![1, 3, 5, 6]),
        ] {
            let parsed = parse_cpu_list(text).expect(text);
            assert_eq!(parsed.iter().collect::<Vec<_>>(), ids, "{text}");
            assert_eq!(parsed.to_string(), text);
        }
        for bad in ["x", "3-1", "0,,1", "0-", "-1", "0-4000000000", "99999999999"] {
            assert_eq!(parse_cpu_list(bad), None, "{bad}");
        }
    }

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("parent")).expect("folder");
        fs::write(path, text).expect("write");
    }

    /// Two sockets of two cores of two threads, the threads of a core four numbers apart.
    fn two_sockets(allowed: &str) -> tempfile::TempDir {
        let scratch = tempfile::tempdir().expect("scratch folder");
        let root = scratch.path();
        put(root, "sys/devices/system/cpu/online", "0-7\n");
        put(root, "proc/self/status", &format!("Name:\tx\nCpus_allowed_list:\t{allowed}\n"));
        put(root, "sys/devices/system/node/node0/cpulist", "0-1,4-5\n");
        put(root, "sys/devices/system/node/node1/cpulist", "2-3,6-7\n");
        for id in 0..8 {
            let topology = format!("sys/devices/system/cpu/cpu{id}/topology");
            let core = id % 4;
            put(root, &format!("{topology}/physical_package_id"), &format!("{}\n", core / 2));
            put(root, &format!("{topology}/core_cpus_list"), &format!("{core},{}\n", core + 4));
        }
        scratch
    }

    #[test]
    fn topology_is_numbered_by_socket_core_and_thread() {
        let scratch = two_sockets("0-7");
        let found = CpuTopology::read(scratch.path()).expect("read");
        let shape = (found.sockets, found.cores_per_socket, found.threads_per_core);
        assert_eq!(shape, (2, 2, 2));
        let ids: Vec<u32> = found.cpus.iter().map(|cpu| cpu.id).collect();
        assert_eq!(ids, [0, 4, 1, 5, 2, 6, 3, 7]);
        let last = Cpu { id: 7, socket: 1, core: 1, thread: 1, numa_node: Some(1) };
        assert_eq!(found.cpus.last(), Some(&last));
    }

    #[test]
    fn only_processors_of_the_cpuset_are_found() {
        let scratch = two_sockets("2-3");
        let found = CpuTopology::read(scratch.path()).expect("read");
        let shape = (found.sockets, found.cores_per_socket, found.threads_per_core);
        assert_eq!(shape, (1, 2, 1));
        assert_eq!(found.cpus[0].socket, 0, "sockets are numbered without gaps");
    }

    #[test]
    fn without_topology_files_every_processor_is_a_core() {
        let scratch = tempfile::tempdir().expect("scratch folder");
        put(scratch.path(), "sys/devices/system/cpu/online", "0-3\n");
        put(scratch.path(), "proc/self/status", "Cpus_allowed_list:\t0-127\n");
        let found = CpuTopology::read(scratch.path()).expect("read");
        assert_eq!((found.sockets, found.cores_per_socket, found.threads_per_core), (1, 4, 1));
    }

    #[test]
    fn damaged_cpu_list_is_an_error_that_names_the_file() {
        let scratch = tempfile::tempdir().expect("scratch folder");
        put(scratch.path(), "sys/devices/system/cpu/online", "0-x\n");
        let error = CpuTopology::read(scratch.path()).expect_err("damaged").to_string();
        assert!(error.contains("cpu/online") && error.contains("0-x"), "{error}");
    }
}
