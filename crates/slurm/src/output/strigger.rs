//! What `strigger --get` prints.

use model::hostlist;
use model::printable::printable;
use model::trigger::{Trigger, TriggerSubject};

const HEAD: [&str; 8] =
    ["TRIG_ID", "RES_TYPE", "RES_ID", "TYPE", "OFFSET", "USER", "FLAGS", "PROGRAM"];

/// Columns of Slurm's widths; the last is as long as its text.
pub fn list(triggers: &[Trigger], no_header: bool) -> String {
    let head = (!no_header).then(|| HEAD.map(str::to_owned));
    let rows = head.into_iter().chain(triggers.iter().map(row));
    rows.map(|cells| line(&cells)).collect()
}

fn row(trigger: &Trigger) -> [String; 8] {
    let request = &trigger.request;
    let (kind, subject) = match &request.subject {
        TriggerSubject::Job(job) => ("job", job.to_string()),
        TriggerSubject::Nodes(names) if names.is_empty() => ("node", "*".to_owned()),
        TriggerSubject::Nodes(names) => ("node", hostlist::compress(names)),
    };
    [
        trigger.id.to_string(),
        kind.to_owned(),
        subject,
        request.event.word().to_owned(),
        request.offset_s.to_string(),
        printable(&trigger.owner).into_owned(),
        if request.permanent { "PERM" } else { "" }.to_owned(),
        printable(&request.program).into_owned(),
    ]
}

fn line(cells: &[String; 8]) -> String {
    let [id, kind, subject, event, offset, user, flags, program] = cells;
    let text = format!(
        "{id:>7} {kind:>9} {subject:>7} {event:>11} {offset:>6} {user:>8} {flags:>5} {program}"
    );
    text.trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::id::JobId;
    use model::time::Timestamp;
    use model::trigger::{TriggerEvent, TriggerRequest};

    #[test]
    fn a_trigger_is_a_line_with_its_subject_and_event() {
        let trigger = |id, subject, event, permanent| Trigger {
            id,
            owner: "root".into(),
            owner_uid: 0,
            set: Timestamp::from_millis(0),
            request: TriggerRequest {
                subject,
                event,
                offset_s: 0,
                program: "/sbin/notify now".into(),
                permanent,
            },
        };
        let all = [
            trigger(1, TriggerSubject::Nodes(Vec::new()), TriggerEvent::Down, true),
            trigger(2, TriggerSubject::Job(JobId(7)), TriggerEvent::Fini, false),
        ];
        let text = list(&all, false);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = text.lines().map(words).collect();
        assert_eq!(
            lines,
            [
                "TRIG_ID RES_TYPE RES_ID TYPE OFFSET USER FLAGS PROGRAM",
                "1 node * down 0 root PERM /sbin/notify now",
                "2 job 7 fini 0 root /sbin/notify now",
            ]
        );
        assert_eq!(list(&all, true).lines().count(), 2);
    }
}
