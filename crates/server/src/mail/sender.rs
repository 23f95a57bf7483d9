//! The thread that runs `MailProg`: `MailProg -s SUBJECT ADDRESS`, with an empty body.

use crate::job_facts;
use crate::shared::Shared;
use crate::shared::mail_queue::{MailNotice, QueuedMail};
use crate::site_program::SiteProgram;
use model::allocation::Allocation;
use model::mail::check_address;
use slurm::environment::prolog_epilog;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Mail programs that run at once; further mails wait in the queue.
const RUNNING_MAX: usize = 8;

/// A mail program that takes longer is killed.
const MAIL_TIMEOUT: Duration = Duration::from_secs(60);

/// The programs of a site that names none, the first that is there.
const USUAL_PROGRAMS: [&str; 2] = ["/bin/mail", "/usr/bin/mail"];

/// Mails that failed since the last that did not.
#[derive(Default)]
struct Failures(AtomicU64);

impl Failures {
    /// The first failure is logged, and how many there were once a mail is sent again.
    fn note(&self, result: Result<(), String>, mail: &MailNotice) {
        match result {
            Err(why) if self.0.fetch_add(1, Ordering::Relaxed) == 0 => {
                tracing::warn!(job = %mail.job, "mail cannot be sent: {why}; further failures are counted");
            }
            Err(_) => {}
            Ok(()) => {
                let failed = self.0.swap(0, Ordering::Relaxed);
                if failed > 0 {
                    tracing::info!(job = %mail.job, failed, "mail is sent again");
                }
            }
        }
    }
}

/// Sends mails until the queue's other end is gone.
pub fn run(shared: &Arc<Shared>, mails: &Receiver<QueuedMail>) {
    let failures = Arc::new(Failures::default());
    let (slots, free): (SyncSender<()>, Receiver<()>) = sync_channel(RUNNING_MAX);
    for _ in 0..RUNNING_MAX {
        let _ = slots.try_send(());
    }
    while let Ok(mail) = mails.recv() {
        let dropped = shared.mail.take_dropped();
        if dropped > 0 {
            tracing::warn!(dropped, "mails were dropped: too many waited");
        }
        if free.recv().is_err() {
            return;
        }
        let program = program_of(shared, &mail.notice);
        let (slots, failures) = (slots.clone(), failures.clone());
        let slot = Slot(slots);
        let spawned = std::thread::Builder::new().name("mail-program".into()).spawn(move || {
            failures.note(program.and_then(SiteProgram::run), &mail.notice);
            drop(slot);
        });
        if let Err(error) = spawned {
            tracing::warn!("mail: no thread for its program: {error}");
        }
    }
}

/// A place for a program that runs, given back however its thread ends, also if it never began.
struct Slot(SyncSender<()>);

impl Drop for Slot {
    fn drop(&mut self) {
        let _ = self.0.try_send(());
    }
}

fn program_of(shared: &Shared, mail: &MailNotice) -> Result<SiteProgram, String> {
    let state = shared.read();
    let usual = || USUAL_PROGRAMS.into_iter().find(|path| Path::new(path).exists());
    let named = state.config.site.mail_program.clone();
    let program = named.or_else(|| usual().map(str::to_owned));
    let program = program.ok_or("there is no /bin/mail, and slurm.conf names no MailProg")?;
    // A name of an account may be something else to a mail program, and so may what earlier releases accepted.
    check_address(&mail.to)?;
    let mut environment: Vec<(String, String)> = Vec::new();
    if let Some(job) = state.job(mail.job) {
        let none = Allocation { partition: String::new(), nodes: Vec::new() };
        let facts = job_facts::for_site_program(&state, job, job.allocation().unwrap_or(&none));
        let variables = prolog_epilog::mail_variables(&facts);
        environment
            .extend(variables.iter().map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
    environment
        .extend(mail.variables.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    let arguments = vec!["-s".to_owned(), mail.subject.clone(), mail.to.clone()];
    Ok(SiteProgram {
        program,
        arguments,
        environment,
        limit: Some(MAIL_TIMEOUT),
        limit_name: "a minute",
        logs_output: false,
    })
}
