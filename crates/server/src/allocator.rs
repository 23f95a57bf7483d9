//! Memory that the allocator keeps: the server is one process for months, and calls of any size come on all its threads.
//!
//! glibc gives each thread an arena of its own, up to eight a processor, and takes ever larger requests from these: what one large call
//! left behind stays there. So there are few arenas, large requests are mapped and unmapped on their own, and what has become
//! free in the midst of an arena is given back after it has grown.

use std::fs;
use std::time::Duration;

/// Requests from here on are mapped by themselves.
#[cfg(target_env = "gnu")]
const MAPPED_FROM: i32 = 1 << 20;
/// More arenas would save little waiting: the writer is one thread.
#[cfg(target_env = "gnu")]
const ARENAS_MAX: usize = 16;
/// Memory is given back when there is so much more of it than after the last time.
const GROWTH: u64 = 32 << 20;
const PERIOD: Duration = Duration::from_secs(5);
/// For so many periods after it has grown, each time after some of them, memory is given back once more: about five minutes.
const LOOKS_AGAIN: u32 = 60;
const LOOKS_BETWEEN: u32 = 6;

/// To be called before other threads are there.
pub fn configure() {
    #[cfg(target_env = "gnu")]
    {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let arenas = i32::try_from((2 * processors).clamp(4, ARENAS_MAX)).unwrap_or(4);
        for (parameter, value) in
            [(libc::M_ARENA_MAX, arenas), (libc::M_MMAP_THRESHOLD, MAPPED_FROM)]
        {
            // SAFETY: it sets a number of the allocator's, under a lock of its own.
            if unsafe { libc::mallopt(parameter, value) } == 0 {
                tracing::warn!("the allocator does not take {value} for its parameter {parameter}");
            }
        }
    }
}

/// Gives memory back for as long as the server runs.
pub async fn run() {
    let mut kept = resident_bytes().unwrap_or_default();
    // What was in use when memory was given back may be free later.
    let mut looks_again = 0;
    let mut timer = tokio::time::interval(PERIOD);
    timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        timer.tick().await;
        let Some(resident) = resident_bytes() else { return };
        let has_grown = resident > kept + GROWTH;
        if has_grown {
            looks_again = LOOKS_AGAIN;
        } else if looks_again == 0 {
            kept = kept.min(resident);
            continue;
        } else {
            looks_again -= 1;
        }
        if has_grown || looks_again % LOOKS_BETWEEN == 0 {
            tokio::task::block_in_place(give_back);
        }
        kept = resident_bytes().unwrap_or(resident);
    }
}

fn give_back() {
    // SAFETY: it takes the lock of one arena after the other and touches no memory that is in use.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The memory of this process that is in the machine's.
pub fn resident_bytes() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok()??;
    Some(pages * u64::try_from(page).unwrap_or(4096))
}
