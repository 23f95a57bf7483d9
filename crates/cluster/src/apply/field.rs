//! One field of a job's record, as `scontrol update` sets it.

use crate::changed_spec::set_in_spec;
use crate::state::job::Job;
use model::change::JobField;
use model::run::Hold;
use std::sync::Arc;

pub(super) fn set(job: &mut Job, field: &JobField) {
    match field {
        JobField::Priority(priority) => {
            job.priority = *priority;
            job.priority_set = true;
            match priority {
                0 => job.hold = Some(Hold::Admin),
                _ => job.release(),
            }
            return;
        }
        JobField::SiteFactor(factor) => {
            job.site_factor = *factor;
            return;
        }
        JobField::AdminComment(comment) => {
            job.admin_comment = Some(comment.as_str().into());
            return;
        }
        // A deadline or a node count has no effect on a running job.
        JobField::Deadline(_) | JobField::Nodes(_) if !job.is_waiting() => return,
        JobField::ResetAccrueTime | JobField::WithoutEffect(_) => return,
        JobField::Qos(qos) => job.qos = qos.as_str().into(),
        JobField::Account(account) => job.account = account.as_str().into(),
        JobField::Begin(begin) => job.begin = Some(*begin),
        JobField::ArrayThrottle(throttle) => {
            let has_arrays_id = job.task.is_some_and(|task| task.array == job.id);
            match &mut job.pending {
                Some(pending) => pending.throttle = *throttle,
                None if has_arrays_id => job.throttle = *throttle,
                None => {}
            }
            return;
        }
        JobField::Nice(nice) => {
            let old = i64::from(job.spec.nice);
            let raised = job.priority as i64 + old - i64::from(*nice);
            job.priority = raised.max(1) as u64;
        }
        _ => {}
    }
    set_in_spec(Arc::make_mut(&mut job.spec), field);
}
