//! Against what a real Slurm 22.05 did on a node of 2 sockets with 4 cores of 2 threads, and on one of 2 with 4 of 1.

use super::*;

/// A machine numbered as its parts are: 2 sockets of 4 cores.
fn places(threads: u32) -> Vec<CpuPlace> {
    let place = |id: u32| CpuPlace {
        id,
        kernel: vec![id],
        socket: id / (4 * threads),
        core: id / threads,
        ldom: id / (4 * threads),
    };
    (0..8 * threads).map(place).collect()
}

/// `cpus` of the machine, bound as said; the masks as the list has them, with the label before it.
fn bound(threads: u32, cpus: &str, binding: &CpuBinding, tasks: u32, each: u32) -> String {
    let all = places(threads);
    let cpus: CpuSet = cpus.parse().expect("a list of a test");
    let some: Vec<CpuPlace> = all.iter().filter(|p| cpus.contains(p.id)).cloned().collect();
    let ground = BindableCpus { places: &some, whole: some.len() == all.len(), cpus: 8 * threads };
    match bind(binding, ground, tasks, each) {
        Ok(bound) => {
            let masks = (0..tasks).map(|task| bound.mask(task).map_or("-".into(), text::mask));
            format!("{}{}", bound.label, masks.map(|m| format!(" {m}")).collect::<String>())
        }
        Err(refusal) => refusal.to_string(),
    }
}

fn to(level: Level) -> CpuBinding {
    CpuBinding { kind: Some(CpuBind::To(level)), ..CpuBinding::default() }
}

fn kind(kind: CpuBind) -> CpuBinding {
    CpuBinding { kind: Some(kind), ..CpuBinding::default() }
}

#[test]
fn what_is_not_said_follows_from_the_numbers() {
    let auto = CpuBinding::default();
    let block = CpuBinding { distribution: CpuDistribution::Block, ..auto.clone() };
    let rows: &[(u32, &str, &CpuBinding, u32, u32, &str)] = &[
        (2, "0-1", &auto, 1, 1, "MASK 0x3"),
        (2, "0-1", &auto, 2, 1, "MASK 0x1 0x2"),
        (2, "0-1,8-9", &auto, 4, 1, "MASK 0x1 0x100 0x2 0x200"),
        (2, "0-5", &auto, 3, 2, "MASK 0x3 0xc 0x30"),
        (2, "0-3", &auto, 1, 3, "MASK 0xf"),
        (2, "0-3", &auto, 3, 1, "MASK 0xf 0xf 0xf"),
        (2, "0-5", &auto, 2, 3, "MASK 0x7 0x38"),
        (2, "0-15", &auto, 1, 1, "MASK 0xffff"),
        (2, "0-15", &auto, 2, 1, "MASK 0xff 0xff00"),
        (2, "0-15", &auto, 8, 1, "MASK 0x3 0x300 0xc 0xc00 0x30 0x3000 0xc0 0xc000"),
        (2, "0-15", &block, 8, 1, "MASK 0x3 0xc 0x30 0xc0 0x300 0xc00 0x3000 0xc000"),
        (2, "0-15", &auto, 4, 4, "MASK 0xf 0xf00 0xf0 0xf000"),
        (2, "0-15", &auto, 20, 1, &format!("MASK{}", " 0xffff".repeat(20))),
        (1, "0,4", &auto, 2, 1, "MASK 0x1 0x10"),
        (1, "0-7", &auto, 4, 2, "MASK 0x3 0x30 0xc 0xc0"),
        (1, "0-7", &block, 4, 2, "MASK 0x3 0xc 0x30 0xc0"),
        (1, "0-7", &auto, 3, 1, "MASK 0xff 0xff 0xff"),
        (
            1,
            "0-3,4-5",
            &CpuBinding { distribution: CpuDistribution::Fcyclic, ..auto.clone() },
            3,
            2,
            "MASK 0x11 0x22 0xc",
        ),
    ];
    for (threads, cpus, binding, tasks, each, want) in rows {
        assert_eq!(bound(*threads, cpus, binding, *tasks, *each), *want, "{cpus} {tasks}x{each}");
    }
}

#[test]
fn a_level_that_was_asked_for_is_kept_to() {
    let block = |level| CpuBinding { distribution: CpuDistribution::Block, ..to(level) };
    use Level::{Cores, Sockets, Threads};
    let rows: &[(u32, &str, CpuBinding, u32, u32, &str)] = &[
        (2, "0-15", to(Cores), 3, 1, "MASK 0x3 0x300 0xc"),
        (2, "0-15", to(Sockets), 3, 1, "MASK 0xff 0xff00 0xff"),
        (2, "0-15", to(Threads), 3, 1, "MASK 0x1 0x100 0x2"),
        (2, "0-3,8-11", to(Cores), 2, 3, "MASK 0xf 0xf00"),
        (2, "0-7", block(Cores), 2, 3, "MASK 0xf 0xf0"),
        (2, "0-3,8-11", to(Sockets), 2, 3, "MASK 0xf 0xf00"),
        (2, "0-7", block(Sockets), 2, 3, "MASK 0xff 0xff"),
        (2, "0-3,8-11", to(Threads), 2, 3, "MASK 0x7 0x700"),
        (2, "0-15", to(Cores), 9, 1, "MASK 0x3 0x300 0xc 0xc00 0x30 0x3000 0xc0 0xc000 0x3"),
        (1, "0-5", block(Sockets), 2, 3, "MASK 0xf 0x3f"),
        (1, "0-5", block(Cores), 2, 3, "MASK 0x7 0x38"),
        (1, "0-7", to(Cores), 9, 1, &format!("MASK{}", " 0xff".repeat(9))),
    ];
    for (threads, cpus, binding, tasks, each, want) in rows {
        assert_eq!(
            bound(*threads, cpus, binding, *tasks, *each),
            *want,
            "{binding:?} {tasks}x{each}"
        );
    }
    let one = CpuBinding { one_thread: true, ..to(Cores) };
    assert_eq!(bound(2, "0-3,8-11", &one, 4, 1), "MASK 0x1 0x100 0x4 0x400");
}

/// By the manual: no machine with so many CPUs was at hand.
#[test]
fn threads_are_dealt_over_cores_as_said() {
    use CpuDistribution::{Block, Cyclic, Fcyclic};
    let rows: &[(CpuDistribution, CpuDistribution, u32, u32, &str)] = &[
        (Block, Block, 3, 1, "MASK 0x1 0x2 0x4"),
        (Block, Cyclic, 3, 1, "MASK 0x1 0x4 0x10"),
        (Block, Cyclic, 5, 1, "MASK 0x1 0x4 0x10 0x40 0x2"),
        (Block, Cyclic, 2, 3, "MASK 0x7 0x70"),
        (Block, Fcyclic, 2, 2, "MASK 0x5 0x50"),
        (Block, Cyclic, 9, 1, "MASK 0x1 0x4 0x10 0x40 0x2 0x8 0x20 0x80 0x100"),
        (Cyclic, Cyclic, 4, 1, "MASK 0x1 0x100 0x4 0x400"),
        (Cyclic, Cyclic, 2, 2, "MASK 0x3 0x300"),
        (Cyclic, Fcyclic, 2, 2, "MASK 0x5 0x500"),
        (Fcyclic, Fcyclic, 2, 4, "MASK 0x505 0x5050"),
    ];
    for (sockets, cores, tasks, each, want) in rows {
        let binding = CpuBinding {
            distribution: *sockets,
            core_distribution: Some(*cores),
            ..to(Level::Threads)
        };
        let found = bound(2, "0-15", &binding, *tasks, *each);
        assert_eq!(found, *want, "{sockets:?}:{cores:?} {tasks}x{each}");
    }
    // Cores that are bound whole are dealt as ever.
    let whole = CpuBinding { core_distribution: Some(Fcyclic), ..to(Level::Cores) };
    assert_eq!(bound(2, "0-15", &whole, 3, 1), "MASK 0x3 0x300 0xc");
}

#[test]
fn lists_are_used_again_and_end_at_the_allocation() {
    let map = |list: &[u32]| kind(CpuBind::MapCpu(list.to_vec()));
    let mask = |words: &[&str]| {
        kind(CpuBind::MaskCpu(words.iter().map(|w| text::parse_mask(w).expect("a mask")).collect()))
    };
    assert_eq!(bound(2, "0-15", &map(&[0, 5]), 3, 1), "MAP  0x1 0x20 0x1");
    assert_eq!(bound(2, "0-15", &mask(&["0x1", "f0"]), 3, 1), "MASK 0x1 0xf0 0x1");
    assert_eq!(bound(2, "0-15", &mask(&["0"]), 1, 1), "MASK 0xffff");
    let outside = "CPU binding outside of job step allocation, allocated CPUs are: 0xFFFF.";
    assert_eq!(bound(2, "0-15", &map(&[77]), 3, 1), outside);
    assert_eq!(bound(1, "0", &map(&[1]), 1, 1), outside.replace("0xFFFF", "0x01"));
    assert_eq!(bound(1, "0-7", &kind(CpuBind::Rank), 9, 1).split(' ').next_back(), Some("0x1"));
    let part = bound(1, "0-3", &kind(CpuBind::Rank), 3, 1);
    assert_eq!(part, "Entire node must be allocated for rank,one_thread");
    let part = bound(2, "0-3", &CpuBinding { verbose: true, ..kind(CpuBind::RankLdom) }, 3, 1);
    assert_eq!(part, "Entire node must be allocated for verbose,rank_ldom");
    assert_eq!(bound(1, "0-7", &kind(CpuBind::MapLdom(vec![1, 0])), 2, 1), "LDMAP  0xf0 0xf");
    assert_eq!(bound(1, "0-7", &kind(CpuBind::RankLdom), 3, 1), "LDRANK 0xf 0xf0 0xf");
    assert_eq!(bound(1, "0-7", &kind(CpuBind::MapLdom(vec![3])), 1, 1), "LDMAP  0xff");
}

#[test]
fn the_words_are_those_of_slurm() {
    let all = places(2);
    let whole = BindableCpus { places: &all, whole: true, cpus: 16 };
    let two =
        bind(&CpuBinding { verbose: true, ..CpuBinding::default() }, whole, 2, 1).expect("bound");
    assert_eq!(two.whole_text(), "verbose,mask_cpu:0x00FF,0xFF00");
    assert_eq!((two.kind(), two.list()), ("mask_cpu:", "0x00FF,0xFF00"));
    let who = |rank| text::BoundTask { node: "n1", rank, local_rank: rank, pid: 71 };
    assert_eq!(two.report(who(1)), "cpu-bind=MASK - n1, task  1  1 [71]: mask 0xff00 set");
    let none = bind(&kind(CpuBind::None), whole, 2, 1).expect("bound");
    assert_eq!(none.whole_text(), "quiet,none");
    assert_eq!(none.report(who(0)), "cpu-bind=NONE - n1, task  0  0 [71]: mask 0x0");
    let part = BindableCpus { places: &all[..1], whole: false, cpus: 2 };
    assert_eq!(
        bind(&kind(CpuBind::None), part, 1, 1).expect("bound").whole_text(),
        "quiet,mask_cpu:0x1"
    );
    let many = bind(&to(Level::Cores), whole, 20, 1).expect("bound");
    assert_eq!(many.whole_text(), "quiet,cores,mask_cpu:0xFFFF");
    assert_eq!(many.report(who(3)), "cpu-bind-cores=MASK - n1, task  3  3 [71]: mask 0xffff set");
    let masks = CpuBind::MaskCpu(vec![text::parse_mask("0x1").expect("a mask")]);
    assert_eq!(bind(&kind(masks), whole, 1, 1).expect("bound").whole_text(), "quiet,mask_cpu:1");
}

#[test]
fn memory_is_bound_in_slurms_words() {
    let local = MemBinding { kind: Some(MemBind::Local), prefer: true, ..MemBinding::default() };
    assert_eq!(local.whole_text(), "quiet,prefer,local");
    let verbose = MemBinding { verbose: true, ..MemBinding::default() };
    assert_eq!(verbose.whole_text(), "verbose");
    let who = text::BoundTask { node: "vm", rank: 1, local_rank: 1, pid: 71 };
    let first = CpuSet::from_iter([0]);
    assert_eq!(verbose.report(who, &first), "mem-bind=NULL - vm, task  1  1 [71]: mask 0x1");
    assert_eq!(
        local.report(who, &first),
        "mem-bind PREFER LOC - vm, task  1  1 [71]: mask 0x1 set"
    );
    let map = MemBinding { kind: Some(MemBind::Map(vec![0, 3])), ..MemBinding::default() };
    assert_eq!(map.whole_text(), "quiet,map_mem:0,3");
    assert_eq!(map.named(1).expect("named").to_string(), "3");
    assert_eq!(map.named(2).expect("named").to_string(), "0");
}
