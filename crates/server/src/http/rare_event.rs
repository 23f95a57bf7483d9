//! What a task waits for beside its work, and what seldom comes: that the server ends, or a replica. It is one event for many tasks, behind a
//! lock: it is not asked with each poll of each of them.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

pub struct RareEvent<'e, E> {
    event: Pin<&'e mut E>,
    /// Who is woken when it comes.
    waker: Option<Waker>,
}

impl<'e, E: Future> RareEvent<'e, E> {
    pub fn new(event: Pin<&'e mut E>) -> Self {
        Self { event, waker: None }
    }

    /// Asks for the event where it may have come, or where another than before is to be woken. `may_have_come`: once it says so, it always does.
    pub fn poll(&mut self, may_have_come: bool, context: &mut Context<'_>) -> Poll<E::Output> {
        let waker = context.waker();
        if !may_have_come && self.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            return Poll::Pending;
        }
        self.waker = Some(waker.clone());
        self.event.as_mut().poll(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::Wake;

    struct Other;

    impl Wake for Other {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn event_is_asked_for_where_it_may_have_come_or_another_is_to_be_woken() {
        let asked = Cell::new(0);
        let event = pin!(poll_fn(|_| {
            asked.set(asked.get() + 1);
            if asked.get() == 3 { Poll::Ready(()) } else { Poll::Pending }
        }));
        let mut event = RareEvent::new(event);
        let mut poll = |may_have_come: bool, waker: &Waker| {
            let polled = event.poll(may_have_come, &mut Context::from_waker(waker));
            (polled.is_ready(), asked.get())
        };
        // Clones: whether two wakers are the same is only known of those that were made at one place.
        let [one, other] = [(); 2].map(|()| Waker::from(Arc::new(Other)).clone());
        assert_eq!((poll(false, &one), poll(false, &one)), ((false, 1), (false, 1)));
        assert_eq!((poll(false, &other), poll(false, &other)), ((false, 2), (false, 2)));
        assert_eq!(poll(true, &other), (true, 3));
    }
}
