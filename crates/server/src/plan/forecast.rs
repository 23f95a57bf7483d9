//! The forecast thread: estimates and explanations, worked out on demand beside writer and planner.

use crate::clock;
use crate::shared::Shared;
use crate::shared::forecast_queue::{
    BothEstimates, Estimates, ExpectedStart, ExplainedView, Hypothesis, Question,
};
use cluster::State;
use cluster::view::builder::ViewBuilder;
use model::hostlist;
use model::id::JobId;
use model::reason::{Reason, Refusal};
use model::time::Timestamp;
use sched::query::what_if::with_changed_nodes;
use sched::view::Estimate;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

pub struct ForecastThread {
    questions: Receiver<Question>,
    view_builder: ViewBuilder,
    memo: sched::Memo,
}

/// When each of the jobs would start, in the order of their ids, or why not all of them would.
fn expect(view: &sched::View, now: Timestamp, jobs: &[JobId]) -> Result<Vec<Estimate>, Reason> {
    let mut memo = sched::Memo::default();
    let mut found: Vec<Estimate> = match jobs {
        [one] => {
            sched::query::estimate::estimate_of(view, now, &mut memo, *one).into_iter().collect()
        }
        several => {
            let all = sched::estimates(view, now, &mut memo).into_iter();
            all.filter(|estimate| several.contains(&estimate.job)).collect()
        }
    };
    if found.len() < jobs.len() {
        let reasons = sched::plan(view, now, &mut memo).reasons;
        let of_job = reasons.into_iter().find(|(of, _)| jobs.contains(of));
        return Err(of_job.map_or(Reason::NotPlanned, |(_, reason)| reason));
    }
    found.sort_by_key(|estimate| estimate.job);
    Ok(found)
}

impl ForecastThread {
    pub fn new(questions: Receiver<Question>) -> Self {
        Self { questions, view_builder: ViewBuilder::default(), memo: sched::Memo::default() }
    }

    /// Answers questions until the process ends.
    pub fn run(mut self, shared: &Shared) {
        while let Ok(question) = self.questions.recv() {
            match question {
                Question::Estimates => self.estimate(shared),
                Question::Explain { job, reply } if !reply.is_closed() => {
                    let _ = reply.send(self.explain(shared, job));
                }
                Question::Expect { view, now, jobs, reply } if !reply.is_closed() => {
                    let _ = reply.send(expect(&view, now, &jobs));
                }
                Question::WhatIf { hypothesis, reply } if !reply.is_closed() => {
                    let _ = reply.send(self.what_if(shared, *hypothesis));
                }
                Question::Explain { .. } | Question::Expect { .. } | Question::WhatIf { .. } => {}
            }
        }
    }

    fn estimate(&mut self, shared: &Shared) {
        shared.forecasts.begin_estimates();
        self.estimate_anew(shared);
        shared.forecasts.end_estimates();
    }

    fn estimate_anew(&mut self, shared: &Shared) {
        let forecasts = &shared.forecasts;
        let begun = Instant::now();
        // Before the view is taken: what comes in between is in it as well.
        let position = forecasts.position();
        if forecasts.latest().is_current(position) {
            return;
        }
        let now = clock::now();
        let view = self.view_builder.update(&shared.read(), now);
        let expected = sched::estimates(view, now, &mut self.memo).into_iter().map(|estimate| {
            let nodes = hostlist::compress(estimate.nodes.names()).into();
            (estimate.job, ExpectedStart { start: estimate.start, nodes })
        });
        let by_job = expected.collect();
        forecasts.put(Arc::new(Estimates { position, made: now, took: begun.elapsed(), by_job }));
    }

    fn what_if(
        &mut self,
        shared: &Shared,
        hypothesis: Hypothesis,
    ) -> Result<BothEstimates, Refusal> {
        let Hypothesis { changes, config, by } = hypothesis;
        let time = clock::now();
        let view = self.view_builder.view(&shared.read(), time);
        let changed = match config {
            None => with_changed_nodes(&view, &changes),
            Some(config) => {
                // A copy, so that nobody waits for the lock meanwhile.
                let state = State::clone(&shared.read());
                let state = state.under(*config, &clock::context(by))?;
                with_changed_nodes(&cluster::view::view(&state, time), &changes)
            }
        };
        let changed = changed.map_err(Refusal::UnknownNode)?;
        let waiting = view.queue.len() as u32;
        let now = sched::estimates(&view, time, &mut self.memo);
        let then = sched::estimates(&changed, time, &mut sched::Memo::default());
        Ok(BothEstimates { waiting, now, then })
    }

    fn explain(&mut self, shared: &Shared, job: JobId) -> Option<Box<ExplainedView>> {
        let now = clock::now();
        let view = self.view_builder.view(&shared.read(), now);
        let explanation = sched::explain(&view, now, &mut self.memo, job)?;
        Some(Box::new(ExplainedView { explanation, view }))
    }
}
