//! What a thread of the runtime has to look to before it does something that may take long.

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// Whether this is a thread of a runtime that has others.
pub fn is_multi_threaded() -> bool {
    let runtime = Handle::try_current();
    runtime.is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}

/// Does what may take long, on any thread. A thread of the runtime has its other tasks done elsewhere meanwhile.
pub fn aside<T>(work: impl FnOnce() -> T) -> T {
    if is_multi_threaded() { block_in_place(work) } else { work() }
}
