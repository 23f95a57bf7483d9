//! `sinfo` against the captures.

use super::*;
use crate::output::samples::{at, busy_node, cluster, moment, node};
use crate::words::node::parse_filters;
use model::node::{AdminState, SlotState};
use model::node_reason::{NodeCause, NodeReason, ReasonAuthor};
use model::partition::PartitionState;

fn shown(options: &Options, cluster: &ClusterView) -> String {
    let mut out = Vec::new();
    render(&mut out, options, cluster, moment(cluster.now)).expect("memory takes it");
    String::from_utf8(out).expect("text")
}

fn idle() -> ClusterView {
    ClusterView { now: at(0, 45, 49), ..cluster(vec![node("node1"), node("node2")]) }
}

fn mixed() -> ClusterView {
    cluster(vec![busy_node(), node("node2")])
}

/// Node 1 drained for a bad GPU, with or without a job on it.
fn drained(busy: bool) -> ClusterView {
    let mut first = if busy { busy_node() } else { node("node1") };
    first.admin = Some(AdminState::Drain);
    first.reason = Some(NodeReason {
        cause: NodeCause::Text("bad gpu 3".into()),
        author: ReasonAuthor::User { name: "root".into(), uid: 0 },
        at: at(0, 48, 20),
    });
    ClusterView { now: at(0, 48, 20), ..cluster(vec![first, node("node2")]) }
}

#[test]
fn idle_nodes_share_a_line_in_every_listing() {
    let table = [
        (
            Options::default(),
            concat!(
                "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n",
                "gpu*         up 7-00:00:00      2   idle node[1-2]\n",
                "debug        up      30:00      1   idle node1\n",
            ),
        ),
        (
            Options { long: true, ..Options::default() },
            concat!(
                "Sun Nov 15 00:45:49 2026\n",
                "PARTITION AVAIL  TIMELIMIT   JOB_SIZE ROOT OVERSUBS     GROUPS  NODES       STATE NODELIST\n",
                "gpu*         up 7-00:00:00 1-infinite   no       NO        all      2        idle node[1-2]\n",
                "debug        up      30:00 1-infinite   no       NO        all      1        idle node1\n",
            ),
        ),
        (
            Options { summarize: true, ..Options::default() },
            concat!(
                "PARTITION AVAIL  TIMELIMIT   NODES(A/I/O/T) NODELIST\n",
                "gpu*         up 7-00:00:00          0/2/0/2 node[1-2]\n",
                "debug        up      30:00          0/1/0/1 node1\n",
            ),
        ),
        (
            Options { node_centric: true, ..Options::default() },
            concat!(
                "NODELIST   NODES PARTITION STATE \n",
                "node1          1      gpu* idle  \n",
                "node1          1     debug idle  \n",
                "node2          1      gpu* idle  \n",
            ),
        ),
        (
            Options { node_centric: true, long: true, ..Options::default() },
            concat!(
                "Sun Nov 15 00:45:49 2026\n",
                "NODELIST   NODES PARTITION       STATE CPUS    S:C:T MEMORY TMP_DISK WEIGHT AVAIL_FE REASON              \n",
                "node1          1      gpu*        idle 32     2:16:1 128000        0      1  h100,ib none                \n",
                "node1          1     debug        idle 32     2:16:1 128000        0      1  h100,ib none                \n",
                "node2          1      gpu*        idle 32     2:16:1 128000        0      1  h100,ib none                \n",
            ),
        ),
        (
            Options { reasons: true, ..Options::default() },
            "REASON               USER      TIMESTAMP           NODELIST\n",
        ),
        (
            Options { dead: true, ..Options::default() },
            concat!(
                "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n",
                "gpu*         up 7-00:00:00      0    n/a \n",
                "debug        up      30:00      0    n/a \n",
            ),
        ),
        (
            Options { nodes: vec!["nosuch".into()], ..Options::default() },
            concat!(
                "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n",
                "gpu*         up 7-00:00:00      0    n/a \n",
                "debug        up      30:00      0    n/a \n",
            ),
        ),
    ];
    for (options, expected) in table {
        assert_eq!(shown(&options, &idle()), expected);
    }
}

#[test]
fn a_busy_node_has_a_line_of_its_own() {
    assert_eq!(
        shown(&Options::default(), &mixed()),
        concat!(
            "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n",
            "gpu*         up 7-00:00:00      1    mix node1\n",
            "gpu*         up 7-00:00:00      1   idle node2\n",
            "debug        up      30:00      1    mix node1\n",
        )
    );
    let options = Options { node_centric: true, long: true, ..Options::default() };
    assert_eq!(
        shown(&options, &mixed()),
        concat!(
            "Sun Nov 15 00:46:21 2026\n",
            "NODELIST   NODES PARTITION       STATE CPUS    S:C:T MEMORY TMP_DISK WEIGHT AVAIL_FE REASON              \n",
            "node1          1      gpu*       mixed 32     2:16:1 128000        0      1  h100,ib none                \n",
            "node1          1     debug       mixed 32     2:16:1 128000        0      1  h100,ib none                \n",
            "node2          1      gpu*        idle 32     2:16:1 128000        0      1  h100,ib none                \n",
        )
    );
}

#[test]
fn a_node_has_a_line_in_each_of_its_partitions() {
    let format = Some("%N".to_owned());
    let options = Options { node_centric: true, no_header: true, format, ..Options::default() };
    assert_eq!(shown(&options, &mixed()), "node1\nnode1\nnode2\n");
    let by_partition = Options { partitions: vec!["gpu".into()], ..options };
    assert_eq!(shown(&by_partition, &mixed()), "node1\nnode2\n");
}

#[test]
fn every_letter_has_its_header_and_cell() {
    let letters = "%P|%a|%l|%D|%t|%T|%N|%C|%c|%m|%G|%f|%e|%O|%E|%H|%u|%w|%X|%Y|%Z|%z|%d|%F|%A|%b|%B|%g|%h|%i|%I|%L|%M|%n|%o|%p|%R|%r|%s|%S|%U|%V|%v";
    let options = Options { format: Some(letters.into()), ..Options::default() };
    let mut out = Vec::new();
    let warnings = render(&mut out, &options, &mixed(), moment(at(0, 46, 21))).expect("memory");
    assert_eq!(
        String::from_utf8(out).expect("text"),
        concat!(
            "PARTITION|AVAIL|TIMELIMIT|NODES|STATE|STATE|NODELIST|CPUS(A/I/O/T)|CPUS|MEMORY|GRES|AVAIL_FEATURES|FREE_MEM|CPU_LOAD|REASON|TIMESTAMP|USER|WEIGHT|SOCKETS|CORES|THREADS|S:C:T|TMP_DISK|NODES(A/I/O/T)|NODES(A/I)|ACTIVE_FEATURES|MAX_CPUS_PER_NODE|GROUPS|OVERSUBSCRIBE|%i|PRIO_JOB_FACTOR|DEFAULTTIME|PREEMPT_MODE|HOSTNAMES|NODE_ADDR|PRIO_TIER|PARTITION|ROOT|JOB_SIZE|ALLOCNODES|USER|CLUSTER|VERSION\n",
            "gpu*|up|7-00:00:00|1|mix|mixed|node1|4/28/0/32|32|128000|gpu:h100:8|h100,ib|18358|1.01|none|Unknown|Unknown|1|2|16|1|2:16:1|0|1/0/0/1|1/0|h100,ib|UNLIMITED|all|NO|%i|1|1:00:00|REQUEUE|vm|127.0.0.1|1|gpu|no|1-infinite|all|Unknown|N/A|22.05.8\n",
            "gpu*|up|7-00:00:00|1|idle|idle|node2|0/32/0/32|32|128000|gpu:h100:8|h100,ib|18351|1.01|none|Unknown|Unknown|1|2|16|1|2:16:1|0|0/1/0/1|0/1|h100,ib|UNLIMITED|all|NO|%i|1|1:00:00|REQUEUE|vm|127.0.0.1|1|gpu|no|1-infinite|all|Unknown|N/A|22.05.8\n",
            "debug|up|30:00|1|mix|mixed|node1|4/28/0/32|32|128000|gpu:h100:8|h100,ib|18358|1.01|none|Unknown|Unknown|1|2|16|1|2:16:1|0|1/0/0/1|1/0|h100,ib|UNLIMITED|all|NO|%i|1|n/a|REQUEUE|vm|127.0.0.1|10|debug|no|1-infinite|all|Unknown|N/A|22.05.8\n",
        )
    );
    assert_eq!(warnings, ["Invalid node format specification: i"]);
}

#[test]
fn without_partitions_a_node_is_counted_once() {
    let options = Options { format: Some("%20N %10c %10m %25f %10G".into()), ..Options::default() };
    assert_eq!(
        shown(&options, &mixed()),
        concat!(
            "NODELIST             CPUS       MEMORY     AVAIL_FEATURES            GRES      \n",
            "node[1-2]            32         128000     h100,ib                   gpu:h100:8\n",
        )
    );
}

#[test]
fn long_names_have_their_widths() {
    let names =
        "NodeList,Partition,StateCompact,CPUs,AllocMem,Gres,GresUsed,Features,Weight,Version,Time";
    let options =
        Options { long_format: Some(names.into()), node_centric: true, ..Options::default() };
    let mut expected: Vec<&str> = concat!(
        "NODELIST            PARTITION           STATE               CPUS                ALLOCMEM            GRES                GRES_USED           AVAIL_FEATURES      WEIGHT              VERSION             TIMELIMIT           \n",
        "node1               debug               mix                 32                  8192                gpu:h100:8          gpu:h100:2(IDX:0-1) h100,ib             1                   22.05.8             30:00               \n",
        "node1               gpu*                mix                 32                  8192                gpu:h100:8          gpu:h100:2(IDX:0-1) h100,ib             1                   22.05.8             7-00:00:00          \n",
        "node2               gpu*                idle                32                  0                   gpu:h100:8          gpu:h100:0(IDX:N/A) h100,ib             1                   22.05.8             7-00:00:00          \n",
    ).lines().collect();
    // In the capture the partitions of one node come in no fixed order; here in the configuration's.
    expected.swap(1, 2);
    assert_eq!(shown(&options, &mixed()).lines().collect::<Vec<_>>(), expected);
    let names = "NodeHost,Gres:30,GresUsed:40,CPUsState,Memory,FreeMem,StateLong,Reason";
    let options = Options { long_format: Some(names.into()), ..Options::default() };
    let mut expected: Vec<&str> = concat!(
        "HOSTNAMES           GRES                          GRES_USED                               CPUS(A/I/O/T)       MEMORY              FREE_MEM            STATE               REASON              \n",
        "vm                  gpu:h100:8                    gpu:h100:0(IDX:N/A)                     0/32/0/32           128000              18351               idle                none                \n",
        "vm                  gpu:h100:8                    gpu:h100:2(IDX:0-1)                     4/28/0/32           128000              18358               mixed               none                \n",
    ).lines().collect();
    expected.swap(1, 2);
    assert_eq!(shown(&options, &mixed()).lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_format_without_columns_prints_an_empty_line() {
    let options = Options { long_format: Some("bogus".into()), ..Options::default() };
    assert_eq!(shown(&options, &idle()), "\n\n");
}

#[test]
fn a_drained_node_is_shown_with_its_reason() {
    assert_eq!(
        shown(&Options::default(), &drained(true)),
        concat!(
            "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n",
            "gpu*         up 7-00:00:00      1   drng node1\n",
            "gpu*         up 7-00:00:00      1   idle node2\n",
            "debug        up      30:00      1   drng node1\n",
        )
    );
    assert_eq!(
        shown(&Options::default(), &drained(false)),
        concat!(
            "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n",
            "gpu*         up 7-00:00:00      1  drain node1\n",
            "gpu*         up 7-00:00:00      1   idle node2\n",
            "debug        up      30:00      1  drain node1\n",
        )
    );
    let reasons = Options { reasons: true, ..Options::default() };
    assert_eq!(
        shown(&reasons, &drained(true)),
        concat!(
            "REASON               USER      TIMESTAMP           NODELIST\n",
            "bad gpu 3            root      2026-11-15T00:48:20 node1\n",
        )
    );
    let long = Options { reasons: true, long: true, ..Options::default() };
    assert_eq!(
        shown(&long, &drained(true)),
        concat!(
            "Sun Nov 15 00:48:20 2026\n",
            "REASON               USER         TIMESTAMP           STATE  NODELIST\n",
            "bad gpu 3            root(0)      2026-11-15T00:48:20 drng   node1\n",
        )
    );
    let format = Options { format: Some("%n %t %E %H %u".into()), ..Options::default() };
    assert_eq!(
        shown(&format, &drained(false)),
        concat!(
            "HOSTNAMES STATE REASON TIMESTAMP USER\n",
            "vm drain bad gpu 3 2026-11-15T00:48:20 root\n",
            "vm idle none Unknown Unknown\n",
        )
    );
    let states = parse_filters("drain").expect("a state");
    assert_eq!(
        shown(&Options { states, ..Options::default() }, &drained(false)),
        concat!(
            "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n",
            "gpu*         up 7-00:00:00      1  drain node1\n",
            "debug        up      30:00      1  drain node1\n",
        )
    );
}

#[test]
fn silent_nodes_and_down_nodes_and_partitions_are_marked() {
    let mut silent = node("node1");
    silent.slot = SlotState::Silent;
    assert_eq!(
        shown(&Options::default(), &cluster(vec![silent, node("node2")])),
        concat!(
            "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n",
            "gpu*         up 7-00:00:00      1  idle* node1\n",
            "gpu*         up 7-00:00:00      1   idle node2\n",
            "debug        up      30:00      1  idle* node1\n",
        )
    );
    let mut down = node("node2");
    down.admin = Some(AdminState::Down);
    assert_eq!(
        shown(&Options::default(), &cluster(vec![node("node1"), down])),
        concat!(
            "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n",
            "gpu*         up 7-00:00:00      1   idle node1\n",
            "gpu*         up 7-00:00:00      1   down node2\n",
            "debug        up      30:00      1   idle node1\n",
        )
    );
    let mut view = idle();
    view.partitions[1].state = PartitionState::Down;
    assert_eq!(
        shown(&Options::default(), &view),
        concat!(
            "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n",
            "gpu*         up 7-00:00:00      2   idle node[1-2]\n",
            "debug      down      30:00      1   idle node1\n",
        )
    );
}

#[test]
fn different_nodes_share_a_line_with_the_least_value_unless_exact() {
    let mut view = idle();
    view.nodes[1].config.memory = model::amount::Bytes::from_mib(64_000);
    let format = Some("%N %m %e".to_owned());
    let loose = Options { format: format.clone(), no_header: true, ..Options::default() };
    assert_eq!(shown(&loose, &view), "node[1-2] 64000+ 18351-18358\n");
    let exact = Options { exact: true, ..loose };
    assert_eq!(shown(&exact, &view), "node1 128000 18358\nnode2 64000 18351\n");
}

#[test]
fn hidden_partitions_are_shown_when_asked_for() {
    let mut view = idle();
    view.partitions[1].hidden = true;
    let lines = |options: &Options| shown(options, &view).lines().count();
    assert_eq!(lines(&Options::default()), 2);
    assert_eq!(lines(&Options { all: true, ..Options::default() }), 3);
    assert_eq!(lines(&Options { partitions: vec!["debug".into()], ..Options::default() }), 2);
}

#[test]
fn column_of_partitions_is_as_wide_as_the_longest_name() {
    let mut view = idle();
    view.partitions[1].name = "interactive-debug".into();
    let listed = concat!(
        "PARTITION         AVAIL  TIMELIMIT  NODES  STATE NODELIST\n",
        "gpu*                 up 7-00:00:00      2   idle node[1-2]\n",
        "interactive-debug    up      30:00      1   idle node1\n",
    );
    assert_eq!(shown(&Options::default(), &view), listed);
    for options in [
        Options { long: true, ..Options::default() },
        Options { summarize: true, ..Options::default() },
    ] {
        assert!(shown(&options, &view).contains("\ninteractive-debug "));
    }
    let cut = Options { format: Some("%9P".into()), ..Options::default() };
    assert_eq!(shown(&cut, &view), "PARTITION\ngpu*     \ninteracti\n");
}

#[test]
fn nodes_that_are_not_there_yet_are_not_listed() {
    let mut view = idle();
    view.nodes[1].admin = Some(AdminState::Future);
    let options = Options { no_header: true, ..Options::default() };
    let listed = concat!(
        "gpu*         up 7-00:00:00      1   idle node1\n",
        "debug        up      30:00      1   idle node1\n",
    );
    assert_eq!(shown(&options, &view), listed);
}
