//! Tells the servers that wait of commits, beside the commits. One that told of itself would take a lock of the whole database server
//! until it is on disk, and a third longer; several that follow one another are told together.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::commit_signal::CommitSignal;
use super::connection::Database;

/// The time between two notices: whoever hears of a commit takes in those of as long together.
const PAUSE: Duration = Duration::from_millis(5);
/// The time between two looks whether anybody is there, while nobody is: one that comes looks by itself for longer.
const PAUSE_ALONE: Duration = Duration::from_millis(100);
const TELL: &str = "SELECT pg_notify('sluice', '')";

/// The thread that tells of commits. It ends when this is dropped.
pub struct Notifier(Arc<CommitSignal>);

impl Notifier {
    /// Tells of the commits of the journal in `database`, by a session of its own: no commit waits for a notice. Where nobody else is
    /// there, nobody is told; one that has just come looks by itself meanwhile.
    pub fn start(
        database: &Database,
        session: Arc<Database>,
        is_anybody_there: impl Fn() -> bool + Send + 'static,
    ) -> io::Result<Self> {
        let committed = database.committed.clone();
        let notifier = Self(committed.clone());
        std::thread::Builder::new().name("notifier".into()).spawn(move || {
            while committed.take() {
                if !is_anybody_there() {
                    std::thread::sleep(PAUSE_ALONE);
                    continue;
                }
                if let Err(error) = session.ask(|session| session.query(TELL, &[]).map(drop)) {
                    tracing::debug!("the other servers find a commit by themselves: {error}");
                }
                std::thread::sleep(PAUSE);
            }
        })?;
        Ok(notifier)
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.0.end();
    }
}
