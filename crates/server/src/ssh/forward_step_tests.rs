//! What the server passes on between a step and the connections in its job.

use super::*;
use std::time::Duration;
use tokio::time::timeout;
use wire::forward::DATA_MAX;

/// Longer than any of it takes, unless one side waits for the other for ever.
const TIMEOUT: Duration = Duration::from_secs(60);
const REPORTS: usize = 20;
const ORDERS: usize = 4;

/// A step says how much more it takes behind the bytes of its connections: who does not read those while the step takes nothing waits for
/// ever.
#[tokio::test]
async fn what_a_step_says_is_taken_while_it_takes_nothing() {
    let (to, mut input) = mpsc::channel(1);
    let (reports, from) = mpsc::channel(1);
    let (orders, receiver) = mpsc::channel(1);
    let tunnels = Tunnels { idle: TIMEOUT, served: Default::default() };
    let forwarded = Forwarded { counts: UserCounts::default(), user: 7 };
    let step = StepClient { to, from };
    let step = ForwardStep::new(step, orders.downgrade(), None, tunnels, forwarded);
    tokio::spawn(step.run(receiver));
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
