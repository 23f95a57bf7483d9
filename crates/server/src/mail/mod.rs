//! Mails about jobs. `notice` makes them from events, `watch` from what time brings, `sender` runs `MailProg` for each.
//!
//! A mail is sent at most once: it is made when its event is committed and is not stored, so that a restarted server sends
//! none again. What was queued when a server was killed, and marks of time limits that were passed while none ran, are not sent.

pub mod notice;
pub mod sender;
pub mod watch;
