//! A node's boards, sockets, cores and threads, and the CPUs reserved for the system.

use super::{accepted, refused};

/// CPUs, boards, sockets, cores of a socket, threads of a core.
type Shape = (u32, u32, u32, u32, u32);

#[test]
fn missing_counts_follow_from_the_given_ones() {
    let table: [(&str, Shape); 13] = [
        ("", (1, 1, 1, 1, 1)),
        ("CPUs=4", (4, 1, 4, 1, 1)),
        ("Procs=4", (4, 1, 4, 1, 1)),
        ("Sockets=2", (2, 1, 2, 1, 1)),
        ("Sockets=2 CoresPerSocket=8 ThreadsPerCore=2", (32, 1, 2, 8, 2)),
        ("SocketsPerBoard=2 CoresPerSocket=8", (16, 1, 2, 8, 1)),
        ("Boards=2 SocketsPerBoard=2 CoresPerSocket=4 ThreadsPerCore=2", (32, 2, 4, 4, 2)),
        ("Boards=2 Sockets=2 CoresPerSocket=4", (16, 2, 4, 4, 1)),
        ("CPUs=32 CoresPerSocket=8 ThreadsPerCore=2", (32, 1, 2, 8, 2)),
        ("CPUs=32 Boards=2 CoresPerSocket=8 ThreadsPerCore=2", (32, 2, 2, 8, 2)),
        // CPUs may count the cores: jobs are then given cores.
        ("CPUs=16 Sockets=2 CoresPerSocket=8 ThreadsPerCore=2", (16, 1, 2, 8, 2)),
        ("CPUs=8 CoresPerSocket=8 ThreadsPerCore=2", (8, 1, 1, 8, 2)),
        (
            "CPUs=32 Boards=1 SocketsPerBoard=2 CoresPerSocket=16 ThreadsPerCore=1",
            (32, 1, 2, 16, 1),
        ),
    ];
    for (keys, shape) in table {
        let conf = accepted(&[("slurm.conf", &format!("NodeName=n {keys}"))]);
        let c = &conf.slurm.nodes[0].config;
        let found = (c.cpus, c.boards, c.sockets, c.cores_per_socket, c.threads_per_core);
        assert_eq!(found, shape, "{keys}");
    }
}

#[test]
fn cpus_that_the_shape_does_not_have_are_told_and_do_not_count() {
    let table: [(&str, Shape, &str); 6] = [
        ("CPUs=2 Procs=3", (2, 1, 2, 1, 1), "Procs: the former name of CPUs"),
        ("CPUs=12 Sockets=2 CoresPerSocket=8", (16, 1, 2, 8, 1), "CPUs: 12 are not"),
        (
            "Procs=12 Sockets=2 CoresPerSocket=8 ThreadsPerCore=2",
            (32, 1, 2, 8, 2),
            "Procs: 12 are neither the node's 32 threads, which count, nor its 16 cores",
        ),
        ("CPUs=12 CoresPerSocket=8", (8, 1, 1, 8, 1), "CPUs: 12 are not the node's 8 cores"),
        ("CPUs=4 CoresPerSocket=8", (8, 1, 1, 8, 1), "CPUs: 4 are not the node's 8 cores"),
        ("CPUs=24 Boards=2 CoresPerSocket=8", (16, 2, 2, 8, 1), "CPUs: 24 are not the node's 16"),
    ];
    for (keys, shape, told) in table {
        let conf = accepted(&[("slurm.conf", &format!("NodeName=n[1-9] {keys}"))]);
        let c = &conf.slurm.nodes[8].config;
        let found = (c.cpus, c.boards, c.sockets, c.cores_per_socket, c.threads_per_core);
        assert_eq!(found, shape, "{keys}");
        let [notice] = &conf.notices[..] else { panic!("{keys}: {:?}", conf.notices) };
        let text = notice.to_string();
        assert!(text.starts_with(&format!("/c/slurm.conf:1: {told}")), "{keys}: {text}");
    }
}

#[test]
fn contradicting_counts_are_refused() {
    let table = [
        ("CPUs=0", "CPUs: \"0\": expected from 1 to 65536"),
        ("CPUs=UNLIMITED", "CPUs: \"UNLIMITED\": expected from 1 to 65536"),
        ("ThreadsPerCore=0", "ThreadsPerCore: \"0\": expected from 1 to 65536"),
        ("Sockets=2 SocketsPerBoard=2", "SocketsPerBoard: \"2\": excludes Sockets"),
        (
            "Boards=65535 Sockets=65535 CoresPerSocket=65535 ThreadsPerCore=65535",
            "Sockets: \"65535\": expected at most 65536 CPUs in all",
        ),
        (
            "CPUs=4 CoresPerSocket=2 ThreadsPerCore=65535",
            "ThreadsPerCore: \"65535\": expected at most",
        ),
    ];
    for (keys, expected) in table {
        let said = refused(&[("slurm.conf", &format!("NodeName=n[1-9] {keys}"))]);
        assert!(said.lines().count() == 1 && said.contains(expected), "{keys}: {said}");
    }
}

#[test]
fn reserved_cpus_are_whole_cores() {
    let table = [
        ("Sockets=2 CoresPerSocket=4", "CoreSpecCount=0", ""),
        ("Sockets=2 CoresPerSocket=4", "CoreSpecCount=1", "7"),
        ("Sockets=2 CoresPerSocket=4", "CoreSpecCount=3", "3,6-7"),
        ("Sockets=2 CoresPerSocket=4", "CoreSpecCount=7", "1-7"),
        ("Sockets=2 CoresPerSocket=2 ThreadsPerCore=2", "CoreSpecCount=2", "2-3,6-7"),
        // CPUs that are cores have no second thread.
        ("CPUs=4 Sockets=2 CoresPerSocket=2 ThreadsPerCore=2", "CoreSpecCount=2", "1,3"),
        ("Sockets=2 CoresPerSocket=4", "CpuSpecList=0-1,5", "0-1,5"),
        ("Sockets=2 CoresPerSocket=4 ThreadsPerCore=2", "CpuSpecList=1,4", "0-1,4-5"),
    ];
    for (shape, key, reserved) in table {
        let conf = accepted(&[("slurm.conf", &format!("NodeName=n {shape} {key}"))]);
        let found = conf.slurm.nodes[0].config.cpus_reserved.to_string();
        assert_eq!(found, reserved, "{shape} {key}");
    }
    let table = [
        ("CoreSpecCount=8", "CoreSpecCount: \"8\": expected to leave a core of 8 to jobs"),
        ("CoreSpecCount=9", "CoreSpecCount: \"9\": expected to leave a core of 8 to jobs"),
        ("CpuSpecList=0-7", "CpuSpecList: \"0-7\": expected to leave a core of 8 to jobs"),
        ("CpuSpecList=8", "CpuSpecList: \"8\": expected CPUs from 0 to 7"),
        ("CpuSpecList=0 CoreSpecCount=1", "CoreSpecCount: \"1\": excludes CpuSpecList"),
    ];
    for (key, expected) in table {
        let said = refused(&[("slurm.conf", &format!("NodeName=n CPUs=8 {key}"))]);
        assert!(said.contains(expected), "{key}: {said}");
    }
}
