//! What the server passes on between a step and the connections in its job.

use super::*;
use std::time::Duration;
use tokio::time::timeout;
use wire::forward::DATA_MAX;

/// Longer than any of it takes, unless one side waits for the other for ever.
const TIMEOUT: Duration = Duration::from_secs(60);
const REPORTS: usize = 20;
const ORDERS: usize = 4;

fn forward_step(step: StepClient, orders: &mpsc::Sender<Order>) -> ForwardStep {
    let tunnels = Tunnels { idle: TIMEOUT, served: Default::default() };
    let forwarded = Forwarded { counts: UserCounts::default(), user: 7 };
    ForwardStep::new(step, orders.downgrade(), None, tunnels, forwarded)
}

/// A step says how much more it takes behind the bytes of its connections: who does not read those while the step takes nothing waits for
/// ever.
#[tokio::test]
async fn what_a_step_says_is_taken_while_it_takes_nothing() {
    let (to, mut input) = mpsc::channel(1);
    let (reports, from) = mpsc::channel(1);
    let (orders, receiver) = mpsc::channel(1);
    tokio::spawn(forward_step(StepClient { to, from }, &orders).run(receiver));
    let exchange = async {
        for _ in 0..ORDERS {
            let bytes = Bytes::from(vec![0; DATA_MAX]);
            let order = Order::Data { connection: 1, bytes };
            assert!(orders.send(order).await.is_ok(), "it goes on");
        }
        for _ in 0..REPORTS {
            let report = FromStep::Stdout(Bytes::new());
            assert!(reports.send(report).await.is_ok(), "it goes on");
        }
        let mut taken = 0;
        while taken < ORDERS * (frame::HEADER + number_bytes() + DATA_MAX) {
            let Some(ToStep::Input(bytes)) = input.recv().await else { panic!("no input") };
            taken += bytes.len();
        }
        taken
    };
    let taken = timeout(TIMEOUT, exchange).await.expect("nobody waits for ever");
    assert_eq!(taken, ORDERS * (frame::HEADER + number_bytes() + DATA_MAX));
}

/// Each connection that nobody takes is answered with its end: a job that makes many and reads no answer would fill the memory.
#[tokio::test]
async fn step_that_takes_nothing_is_given_up_when_much_waits_for_it() {
    let (to, _input) = mpsc::channel(1);
    let (reports, from) = mpsc::channel(1);
    let (orders, receiver) = mpsc::channel(1);
    let serves = tokio::spawn(forward_step(StepClient { to, from }, &orders).run(receiver));
    let connection = wire::forward::ACCEPTED_FIRST;
    let accepted =
        FromForwarder::Accepted { listener: 1, connection, host: String::new(), port: 0 };
    let mut bytes = Vec::new();
    while bytes.len() < DATA_MAX {
        frame::encode_message(channel::CONTROL, &accepted, &mut bytes).expect("it fits");
    }
    let bytes = Bytes::from(bytes);
    let mut is_given_up = false;
    // An answer is a quarter as long as what it answers, or longer.
    for _ in 0..8 * UNTAKEN_BYTES_MAX / DATA_MAX {
        let report = FromStep::Stdout(bytes.clone());
        let said = timeout(TIMEOUT, reports.send(report)).await.expect("nobody waits for ever");
        is_given_up = said.is_err();
        if is_given_up {
            break;
        }
    }
    assert!(is_given_up, "it holds more than it may");
    serves.await.expect("no panic");
    drop(orders);
}
