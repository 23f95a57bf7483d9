//! The bodies of runs that were listed lately. A list of a hundred runs that wait would otherwise write a hundred bodies anew at each
//! look, of which few have changed.

use super::answer::Refused;
use super::run_facts::RunFacts;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use model::id::JobId;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// The bytes of all bodies that are held. With more, all are let go: the next lists write what they show.
const BYTES_MAX: usize = 8 << 20;

/// A longer body is not held: few of them would take the place of all others.
const BODY_BYTES_MAX: usize = BYTES_MAX / 64;

/// The body of one run, written.
#[derive(Clone)]
pub struct RunBody(Arc<RawValue>);

impl From<Box<RawValue>> for RunBody {
    fn from(text: Box<RawValue>) -> Self {
        Self(text.into())
    }
}

impl RunBody {
    fn text(&self) -> &str {
        self.0.get()
    }
}

/// An answer of several runs, in this order.
pub struct RunPage(pub Vec<RunBody>);

impl RunPage {
    /// A list in JSON, whose memory is asked for once: a hundred runs take half a megabyte.
    fn json(&self) -> String {
        let bytes: usize = self.0.iter().map(|body| body.text().len() + ",".len()).sum();
        let mut json = String::with_capacity(bytes + "[]".len());
        json.push('[');
        for (at, body) in self.0.iter().enumerate() {
            if at > 0 {
                json.push(',');
            }
            json.push_str(body.text());
        }
        json.push(']');
        json
    }
}

impl IntoResponse for RunPage {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, "application/json")], self.json()).into_response()
    }
}

/// One body for each run, for as long as it is asked for with the same facts.
#[derive(Default)]
pub struct RunBodies(Mutex<HeldBodies>);

#[derive(Default)]
struct HeldBodies {
    by_job: HashMap<JobId, HeldBody>,
    bytes: usize,
}

struct HeldBody {
    facts: RunFacts,
    project: String,
    /// It has the texts of its owner.
    has_texts: bool,
    body: RunBody,
}

impl HeldBody {
    fn len(&self) -> usize {
        self.body.text().len()
    }
}

impl RunBodies {
    /// The body that is held of the run with these facts in this project, with or without its texts; or else the one that `make`
    /// writes. Nothing is held of a run that it refuses.
    pub fn get(
        &self,
        run: &RunFacts,
        project: &str,
        has_texts: bool,
        make: impl FnOnce() -> Result<RunBody, Refused>,
    ) -> Result<RunBody, Refused> {
        let is_same = |held: &&HeldBody| {
            held.has_texts == has_texts && held.project == project && held.facts == *run
        };
        let held = self.lock().by_job.get(&run.job).filter(is_same).map(|held| held.body.clone());
        if let Some(body) = held {
            return Ok(body);
        }
        // Others are not held up meanwhile.
        let body = make()?;
        let (facts, project) = (run.clone(), project.to_owned());
        self.lock().put(HeldBody { facts, project, has_texts, body: body.clone() });
        Ok(body)
    }

    fn lock(&self) -> MutexGuard<'_, HeldBodies> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl HeldBodies {
    fn put(&mut self, new: HeldBody) {
        let length = new.len();
        if length > BODY_BYTES_MAX {
            return;
        }
        if self.bytes + length > BYTES_MAX {
            *self = Self::default();
        }
        self.bytes += length;
        if let Some(before) = self.by_job.insert(new.facts.job, new) {
            self.bytes -= before.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dstack::run_summary::RunSummary;
    use dstack::status::{JobStatus, RunStatus};
    use model::time::Timestamp;

    fn facts(job: u32, name: &str) -> RunFacts {
        RunFacts {
            job: JobId(job),
            run: None,
            name: name.into(),
            owner: "ann".into(),
            owner_uid: 1000,
            summary: RunSummary {
                status: RunStatus::Submitted,
                job: JobStatus::Submitted,
                end: None,
                run_end: None,
                exit: None,
                message: String::new(),
                error: String::new(),
            },
            restarts: 0,
            submit: Timestamp(0),
            start: None,
            ended: None,
            next_start: None,
            partition: None,
            parts: Vec::new(),
            network: None,
            nodes_min: 1,
            has_started: false,
            cpus: 1,
            tres: Default::default(),
            work_dir: "/".into(),
            command: None,
            submit_line: String::new(),
            is_held_by_shell: false,
            configuration: None,
            updatable: None,
            service_url: None,
            served_model: None,
            deployment: 0,
            replica: 0,
            replica_group: None,
            replicas: Vec::new(),
        }
    }

    fn body(bytes: usize) -> RunBody {
        let text = format!("\"{}\"", "x".repeat(bytes - 2));
        RawValue::from_string(text).expect("a text").into()
    }

    #[test]
    fn body_is_written_once_and_again_when_the_run_or_who_asks_is_another() {
        let bodies = RunBodies::default();
        let made = |run: &RunFacts, project: &str, has_texts| {
            let mut is_made = false;
            let got = bodies.get(run, project, has_texts, || {
                is_made = true;
                Ok(body(8))
            });
            got.expect("a body");
            is_made
        };
        let run = facts(1, "one");
        let refused = bodies.get(&run, "main", true, || Err(Refused::because("not here")));
        assert!(refused.is_err(), "nothing is held of it");
        assert!(made(&run, "main", true));
        assert!(!made(&run, "main", true), "it is held");
        assert!(made(&facts(1, "other"), "main", true), "it has changed");
        assert!(made(&run, "main", false), "without its texts");
        assert!(made(&run, "other", false), "in another project");
        assert!(made(&facts(2, "one"), "other", false), "another run");
        assert!(!made(&run, "other", false), "it is held");
    }

    #[test]
    fn page_is_a_list_of_its_bodies() {
        let page = |lengths: &[usize]| RunPage(lengths.iter().map(|n| body(*n)).collect()).json();
        assert_eq!(page(&[]), "[]");
        assert_eq!(page(&[4]), "[\"xx\"]");
        assert_eq!(page(&[3, 4, 2]), "[\"x\",\"xx\",\"\"]");
    }

    #[test]
    fn bodies_that_are_held_have_a_bound() {
        let bodies = RunBodies::default();
        for number in 0..100 {
            for name in ["one", "two"] {
                let got =
                    bodies.get(&facts(number, name), "main", true, || Ok(body(BODY_BYTES_MAX)));
                got.expect("a body");
            }
            let held = bodies.lock();
            let bytes: usize = held.by_job.values().map(HeldBody::len).sum();
            assert_eq!(held.bytes, bytes);
            assert!(bytes <= BYTES_MAX, "{bytes}");
        }
        let long = || Ok(body(BODY_BYTES_MAX + 1));
        bodies.get(&facts(1000, "long"), "main", true, long).expect("a body");
        assert!(!bodies.lock().by_job.contains_key(&JobId(1000)));
    }
}
