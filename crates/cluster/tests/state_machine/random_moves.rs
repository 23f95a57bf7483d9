//! The moves of a random history, and how often each is made. Numbers stand for choices among what
//! there is at that moment, so that shrinking one move leaves the others meaningful.

use proptest::prelude::*;

#[derive(Debug, Clone)]
pub enum Move {
    Submit(Shape),
    Plan,
    /// A plan that was made before the last few moves comes in late.
    LatePlan,
    Report {
        job: u8,
        node: u8,
        attempt: i8,
        what: u8,
    },
    /// Every part of a running job reports its end.
    End {
        job: u8,
        code: i32,
    },
    Cancel {
        job: u8,
        tasks: Option<(u8, u8)>,
        again: Option<u8>,
    },
    Change {
        job: u8,
        tasks: Option<(u8, u8)>,
        what: u8,
    },
    Hello {
        node: u8,
        held: u8,
    },
    Lost {
        node: u8,
    },
    Node {
        first: u8,
        second: u8,
        what: u8,
    },
    Pass {
        secs: u64,
        booked: bool,
    },
    Configure {
        nodes: u8,
        memory_gib: u64,
        sharing: u8,
    },
    Step {
        job: u8,
        tasks: u32,
        nodes: Option<u32>,
    },
    Relinquish {
        job: u8,
        code: i32,
    },
    ClientLost {
        job: u8,
    },
    /// A plan preempts a job for another, rightly or not.
    Preempt {
        job: u8,
        by: u8,
        what: u8,
    },
    /// The server stops; the next reads a snapshot and begins a term of its own.
    Restart,
}

/// The request of a random submit.
#[derive(Debug, Clone)]
pub struct Shape {
    pub kind: u8,
    pub cpus: u32,
    pub nodes: u32,
    pub gpus: u64,
    pub array: Option<(u8, Option<u8>)>,
    pub dependency: Option<(u8, u8)>,
    pub wait_policy: u8,
    pub options: u8,
}

fn shape() -> impl Strategy<Value = Shape> {
    let array = prop::option::weighted(0.35, (1u8..6, prop::option::of(1u8..3)));
    let dependency = prop::option::weighted(0.3, (0u8..8, any::<u8>()));
    (0u8..4, 1u32..5, 1u32..3, 0u64..3, array, dependency, 0u8..12, any::<u8>()).prop_map(
        |(kind, cpus, nodes, gpus, array, dependency, wait_policy, options)| Shape {
            kind,
            cpus,
            nodes,
            gpus,
            array,
            dependency,
            wait_policy,
            options,
        },
    )
}

pub fn moves() -> impl Strategy<Value = Move> {
    let tasks = || prop::option::weighted(0.4, (0u8..6, 0u8..3));
    let any8 = any::<u8>;
    prop_oneof![
        8 => shape().prop_map(Move::Submit),
        8 => Just(Move::Plan),
        1 => Just(Move::LatePlan),
        6 => (any8(), any8(), prop_oneof![1 => Just(-1i8), 6 => Just(0), 1 => Just(1)], 0u8..13)
            .prop_map(|(job, node, attempt, what)| Move::Report { job, node, attempt, what }),
        6 => (any8(), 0i32..2).prop_map(|(job, code)| Move::End { job, code }),
        3 => (any8(), tasks(), prop::option::of(any8()))
            .prop_map(|(job, tasks, again)| Move::Cancel { job, tasks, again }),
        6 => (any8(), tasks(), 0u8..20)
            .prop_map(|(job, tasks, what)| Move::Change { job, tasks, what }),
        4 => (any8(), any8()).prop_map(|(node, held)| Move::Hello { node, held }),
        2 => any8().prop_map(|node| Move::Lost { node }),
        2 => (any8(), any8(), 0u8..8)
            .prop_map(|(first, second, what)| Move::Node { first, second, what }),
        4 => (0u64..400, any::<bool>()).prop_map(|(secs, booked)| Move::Pass { secs, booked }),
        1 => (1u8..16, 2u64..17, 0u8..8)
            .prop_map(|(nodes, memory_gib, sharing)| Move::Configure { nodes, memory_gib, sharing }),
        2 => (any8(), 0u32..6, prop::option::of(0u32..4))
            .prop_map(|(job, tasks, nodes)| Move::Step { job, tasks, nodes }),
        1 => (any8(), 0i32..2).prop_map(|(job, code)| Move::Relinquish { job, code }),
        1 => any8().prop_map(|job| Move::ClientLost { job }),
        2 => (any8(), any8(), 0u8..8).prop_map(|(job, by, what)| Move::Preempt { job, by, what }),
        1 => Just(Move::Restart),
    ]
}
