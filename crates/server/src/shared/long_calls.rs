//! Calls that take long: those that read the books, and those that have a plan made for them. Each holds a thread and what it has
//! found meanwhile. A few calls of one user are at work at once; his others wait for their turn without a thread, and beyond a
//! bound they are refused.

use crate::per_user::{CountedUser, UserCounts};
use crate::user_shares::{Share, ShareOwner, UserShares};
use model::bounds::LONG_CALLS;
use model::reason::Refusal;

/// Calls of each kind that are at work at once. Those that read the books, that have a plan made, and that list many jobs as views or as
/// long lines have three quarters of the threads that the runtime makes for work that blocks: with all of them taken, nobody would be
/// answered.
const AT_WORK_MAX: usize = 96;

/// The most long calls of one user at a time. One answer may be made of a million records, and the books have one reader.
pub const BOOKS_OF_USER_MAX: usize = 2;
pub const PLANS_OF_USER_MAX: usize = 4;

/// What a call does that takes long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LongWork {
    ReadBooks,
    Plan,
}

pub struct LongCalls {
    /// At work, or waiting for that.
    begun: UserCounts,
    books: UserShares,
    plans: UserShares,
}

impl Default for LongCalls {
    fn default() -> Self {
        Self {
            begun: UserCounts::default(),
            books: UserShares::with_user_most(AT_WORK_MAX, BOOKS_OF_USER_MAX),
            plans: UserShares::with_user_most(AT_WORK_MAX, PLANS_OF_USER_MAX),
        }
    }
}

/// A call at work, until it is dropped.
pub struct LongCall {
    _counted: CountedUser,
    _share: Option<Share>,
}

impl LongCalls {
    /// Waits until this user may do such work; refuses a call when too many of his wait. Who has begun one does not begin
    /// another before it is over: each could wait for the other.
    pub async fn begin(&self, owner: ShareOwner, work: LongWork) -> Result<LongCall, Refusal> {
        let most = if owner.is_operator { usize::MAX } else { LONG_CALLS.most };
        let counted = self.begun.enter(owner.uid, most).ok_or_else(|| Refusal::InvalidValue {
            what: LONG_CALLS.what.into(),
            value: (most + 1).to_string(),
            expected: format!("at most {most}"),
        })?;
        let shares = match work {
            LongWork::ReadBooks => &self.books,
            LongWork::Plan => &self.plans,
        };
        let share = shares.acquire(owner, 1).await;
        Ok(LongCall { _counted: counted, _share: share })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const ADA: ShareOwner = ShareOwner { uid: 1001, is_operator: false };
    const BOB: ShareOwner = ShareOwner { uid: 1002, is_operator: false };

    #[tokio::test]
    async fn calls_of_one_user_wait_for_one_another_and_for_nobody_else() {
        let calls = Arc::new(LongCalls::default());
        let mut at_work = Vec::new();
        for _ in 0..BOOKS_OF_USER_MAX {
            at_work.push(calls.begin(ADA, LongWork::ReadBooks).await.expect("a turn"));
        }
        let waiting = calls.clone();
        let next =
            tokio::spawn(async move { waiting.begin(ADA, LongWork::ReadBooks).await.is_ok() });
        tokio::task::yield_now().await;
        assert!(!next.is_finished());
        calls.begin(BOB, LongWork::ReadBooks).await.expect("another user");
        calls.begin(ADA, LongWork::Plan).await.expect("other work");
        drop(at_work);
        assert!(next.await.expect("no panic"));
    }

    #[tokio::test]
    async fn user_with_too_many_calls_is_refused_and_an_operator_is_not() {
        let calls = Arc::new(LongCalls::default());
        let begin = |owner| {
            let calls = calls.clone();
            tokio::spawn(async move { calls.begin(owner, LongWork::Plan).await.map(drop) })
        };
        let at_work = {
            let mut begun = Vec::new();
            for _ in 0..PLANS_OF_USER_MAX {
                begun.push(calls.begin(ADA, LongWork::Plan).await.expect("a turn"));
            }
            begun
        };
        let waiting: Vec<_> = (PLANS_OF_USER_MAX..LONG_CALLS.most).map(|_| begin(ADA)).collect();
        tokio::task::yield_now().await;
        let refused = begin(ADA).await.expect("no panic").expect_err("one too many");
        assert_eq!(refused.to_string().lines().count(), 1, "{refused}");
        let operator = ShareOwner { is_operator: true, ..ADA };
        begin(operator).await.expect("no panic").expect("an operator");
        drop(at_work);
        for one in waiting {
            one.await.expect("no panic").expect("its turn");
        }
    }
}
