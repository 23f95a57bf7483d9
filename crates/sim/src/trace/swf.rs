//! The Standard Workload Format: a line of 18 numbers for each job, `-1` where one is not known, and comments after `;`,
//! which are `; Key: value` in the header.
//!
//! A job without a run time or without processors is left out. Its processors are those it asked for, else those it had; it
//! runs no longer than its estimate.

use super::destinations::{Destinations, Field};
use super::lines::Lines;
use super::{Processors, Trace, TraceJob};
use crate::error::SimError;
use model::bounds;
use std::collections::{HashMap, HashSet};
use std::io::Read;

/// The most jobs that are read of a trace.
pub const JOBS_MAX: usize = 20_000_000;

/// The latest submission, seconds: three thousand years.
const SUBMIT_MAX_S: i64 = 100_000_000_000;

const FIELDS: usize = 18;

/// The fields that a replay needs, by their position, with their names.
const SUBMIT: (usize, &str) = (1, "submit time");
const RUN: (usize, &str) = (3, "run time");
const ALLOCATED: (usize, &str) = (4, "allocated processors");
const REQUESTED: (usize, &str) = (7, "requested processors");
const ESTIMATE: (usize, &str) = (8, "requested time");
const USER: (usize, &str) = (11, "user");
const QUEUE: (usize, &str) = (14, "queue");
const PARTITION: (usize, &str) = (15, "partition");

/// What is said of the machine in the header.
#[derive(Default)]
struct Header {
    processors: Option<u32>,
    nodes: Option<u32>,
    epoch_s: i64,
}

/// Reads a trace, from plain text or gzip, whose jobs all go to the default partition.
pub fn read(input: impl Read, processors: Processors) -> Result<Trace, SimError> {
    read_to(input, processors, &Destinations::none())
}

/// Reads a trace, from plain text or gzip.
pub fn read_to(
    input: impl Read,
    processors: Processors,
    destinations: &Destinations,
) -> Result<Trace, SimError> {
    let destination = match destinations.field {
        Field::Queue => QUEUE,
        Field::Partition => PARTITION,
    };
    let positions = destinations.positions();
    let mut unused: HashSet<i64> = positions.keys().copied().collect();
    let mut lines = Lines::new(input)?;
    let mut header = Header::default();
    let mut jobs: Vec<TraceJob> = Vec::new();
    let mut left_out = 0;
    // A job that is left out keeps the order too.
    let mut last_submit_s = 0;
    // What comments say after the first record is for people: the machine does not change below the jobs.
    let mut is_header = true;
    while let Some((line, text)) = lines.read_line()? {
        if let Some(comment) = text.strip_prefix(';') {
            if is_header {
                header.read(comment);
            }
            continue;
        }
        if text.is_empty() {
            continue;
        }
        is_header = false;
        let record = Record::split(line, &text)?;
        let submit_s = record.submit_s()?;
        if submit_s < last_submit_s {
            let fault = format!(
                "submit time {submit_s} before {last_submit_s}: expected lines in order of submission"
            );
            return Err(SimError::line(line, fault));
        }
        last_submit_s = submit_s;
        let Some(job) = record.job(submit_s, destination, &positions)? else {
            left_out += 1;
            continue;
        };
        if let Some(most) = header.bound(processors, line)?
            && job.processors > most
        {
            let fault =
                format!("{} processors: expected at most the machine's {most}", job.processors);
            return Err(SimError::line(line, fault));
        }
        if jobs.len() == JOBS_MAX {
            return Err(SimError::line(line, format!("expected at most {JOBS_MAX} jobs")));
        }
        if !unused.is_empty() {
            unused.remove(&record.number(destination)?);
        }
        jobs.push(job);
    }
    let processors = match processors {
        Processors::FromConfiguration => None,
        Processors::Given(count) => Some(count),
        Processors::FromHeader => header.size(),
    };
    if jobs.is_empty() {
        return Err(SimError::Empty);
    }
    let (epoch_s, partitions) = (header.epoch_s, destinations.partitions());
    let numbers = destinations.named.iter().map(|one| one.number);
    let unused_numbers = numbers.filter(|number| unused.contains(&i64::from(*number))).collect();
    Ok(Trace {
        jobs,
        processors,
        epoch_s,
        left_out,
        partitions,
        unused_numbers,
        ..Trace::default()
    })
}

impl Header {
    /// Takes what a comment says of the machine. Other comments are for people.
    fn read(&mut self, comment: &str) {
        let Some((key, value)) = comment.split_once(':') else { return };
        // Some traces say more after the number.
        let number = value.split_whitespace().next().and_then(|word| word.parse::<i64>().ok());
        let count = || {
            let count = number.and_then(|count| u32::try_from(count).ok());
            count.filter(|count| (1..=bounds::NODES.most).contains(&(*count as usize)))
        };
        match key.trim() {
            "MaxProcs" => self.processors = count(),
            "MaxNodes" => self.nodes = count(),
            "UnixStartTime" => {
                self.epoch_s = number.filter(|s| (0..=SUBMIT_MAX_S).contains(s)).unwrap_or(0);
            }
            _ => {}
        }
    }

    fn size(&self) -> Option<u32> {
        self.processors.or(self.nodes)
    }

    /// The most processors that a job may have, if that is known before the cluster is asked.
    fn bound(&self, processors: Processors, line: u64) -> Result<Option<u32>, SimError> {
        match processors {
            Processors::FromConfiguration => Ok(None),
            Processors::Given(count) => Ok(Some(count)),
            Processors::FromHeader => match self.size() {
                Some(count) => Ok(Some(count)),
                None => Err(SimError::line(
                    line,
                    "no MaxProcs or MaxNodes in the comments before the first job: expected one, or --nodes",
                )),
            },
        }
    }
}

/// The fields of one line.
struct Record<'t> {
    line: u64,
    fields: [&'t str; FIELDS],
}

impl<'t> Record<'t> {
    fn split(line: u64, text: &'t str) -> Result<Self, SimError> {
        let mut fields = [""; FIELDS];
        let mut count = 0;
        for field in text.split_ascii_whitespace() {
            if let Some(slot) = fields.get_mut(count) {
                *slot = field;
            }
            count += 1;
        }
        if count != FIELDS {
            let are = if count == 1 { "field" } else { "fields" };
            let is_parted_by = |mark: &char| text.matches(*mark).count() + 1 >= FIELDS;
            let hint = match [';', ','].into_iter().find(is_parted_by) {
                Some(mark) if count < FIELDS => {
                    format!(" that are parted by blanks, not by {mark:?}")
                }
                _ => String::new(),
            };
            return Err(SimError::line(line, format!("{count} {are}: expected {FIELDS}{hint}")));
        }
        if let Some(at) = fields.iter().position(|field| !is_number(field)) {
            let fault = format!("field {} {:?}: expected a number", at + 1, fields[at]);
            return Err(SimError::line(line, fault));
        }
        Ok(Self { line, fields })
    }

    fn number(&self, (at, name): (usize, &str)) -> Result<i64, SimError> {
        let text = self.fields[at];
        text.parse().map_err(|_| {
            SimError::line(self.line, format!("{name} {text:?}: expected a whole number"))
        })
    }

    fn submit_s(&self) -> Result<i64, SimError> {
        let submit_s = self.number(SUBMIT)?;
        if !(0..=SUBMIT_MAX_S).contains(&submit_s) {
            let fault =
                format!("{} {submit_s}: expected seconds from 0 to {SUBMIT_MAX_S}", SUBMIT.1);
            return Err(SimError::line(self.line, fault));
        }
        Ok(submit_s)
    }

    /// A length of time; `None` where it is not known or zero.
    fn length_s(&self, field: (usize, &str)) -> Result<Option<u32>, SimError> {
        let length_s = self.number(field)?;
        match u32::try_from(length_s) {
            Ok(0) => Ok(None),
            Ok(length_s) => Ok(Some(length_s)),
            Err(_) if length_s == -1 => Ok(None),
            Err(_) => {
                let fault = format!(
                    "{} {length_s}: expected seconds from 0 to {}, or -1 where it is not known",
                    field.1,
                    u32::MAX
                );
                Err(SimError::line(self.line, fault))
            }
        }
    }

    /// A number of processors; `None` where it is not known or zero.
    fn count(&self, field: (usize, &str)) -> Result<Option<u32>, SimError> {
        let count = self.number(field)?;
        match u32::try_from(count) {
            Ok(0) => Ok(None),
            Ok(count) => Ok(Some(count)),
            Err(_) if count == -1 => Ok(None),
            Err(_) => {
                let fault = format!(
                    "{} {count}: expected at most {}, or -1 where they are not known",
                    field.1,
                    u32::MAX
                );
                Err(SimError::line(self.line, fault))
            }
        }
    }

    /// The job, unless it has no run time or no processors. It goes to the partition at the position of its number in the field
    /// `destination`.
    fn job(
        &self,
        submit_s: i64,
        destination: (usize, &str),
        positions: &HashMap<i64, u16>,
    ) -> Result<Option<TraceJob>, SimError> {
        let run_s = self.length_s(RUN)?;
        let estimate_s = self.length_s(ESTIMATE)?;
        let processors = self.count(REQUESTED)?.or(self.count(ALLOCATED)?);
        let user = self.number(USER)?;
        let partition = if positions.is_empty() {
            None
        } else {
            positions.get(&self.number(destination)?).copied()
        };
        let Some((run_s, processors)) = run_s.zip(processors) else { return Ok(None) };
        let estimate_s = estimate_s.unwrap_or(run_s);
        Ok(Some(TraceJob {
            line: self.line,
            submit_s,
            run_s: run_s.min(estimate_s),
            is_cut: run_s > estimate_s,
            processors,
            estimate_s,
            user,
            partition,
        }))
    }
}

/// Whether the field is a number as the format has it: some archives have means with decimals.
fn is_number(field: &str) -> bool {
    let (whole, decimals) = field.split_once('.').unwrap_or((field, "0"));
    let digits = whole.strip_prefix('-').unwrap_or(whole);
    let are_digits =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    are_digits(digits) && are_digits(decimals)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::destinations::Destination;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    const HEADER: &str =
        "; Version: 2.2\n; MaxNodes: 64\n; MaxProcs: 128\n; UnixStartTime: 893466664\n";

    fn record(submit: &str, run: &str, allocated: &str, asked: &str, estimate: &str) -> String {
        format!(
            "1 {submit} -1 {run} {allocated} -1 -1 {asked} {estimate} -1 1 7 -1 -1 -1 -1 -1 -1\n"
        )
    }

    fn fault(text: &str) -> String {
        let trace = read(text.as_bytes(), Processors::FromHeader);
        trace.expect_err("a bad trace").to_string()
    }

    #[test]
    fn processors_estimates_and_jobs_left_out_follow_the_rules() {
        let lines = [
            record("10", "100", "4", "8", "200"),
            // Without a request what it had counts, without an estimate its run time.
            record("10", "100", "4", "-1", "-1"),
            // The estimate ends it.
            record("11", "100", "4", "4", "60"),
            // No run time, no processors: left out.
            record("11", "-1", "4", "4", "60"),
            record("12", "0", "4", "4", "60"),
            record("12", "50", "-1", "-1", "60"),
        ];
        let text = format!("{HEADER}{}", lines.concat());
        let trace = read(text.as_bytes(), Processors::FromHeader).expect("a trace");
        assert_eq!((trace.processors, trace.epoch_s, trace.left_out), (Some(128), 893466664, 3));
        let job = |line, submit_s, processors, estimate_s| TraceJob {
            line,
            submit_s,
            run_s: 100,
            processors,
            estimate_s,
            user: 7,
            ..TraceJob::default()
        };
        let cut = TraceJob { run_s: 60, is_cut: true, ..job(7, 11, 4, 60) };
        assert_eq!(trace.jobs, [job(5, 10, 8, 200), job(6, 10, 4, 100), cut]);
    }

    #[test]
    fn what_stands_around_records_changes_nothing_of_them() {
        let good = record("10", "100", "4", "8", "200");
        let plain = read(format!("{HEADER}{good}").as_bytes(), Processors::FromHeader);
        let plain = plain.expect("a trace");
        // A mark of the encoding, decimals in a field of means, and a smaller machine below the jobs.
        let means = good.replacen("4 -1", "4 8.25", 1);
        let other = format!("\u{feff}{HEADER}{means}; MaxProcs: 1\n");
        let other = read(other.as_bytes(), Processors::FromHeader).expect("a trace");
        assert_eq!(other, plain);
        let mut strange = format!("{HEADER}{good}").into_bytes();
        strange.pop();
        strange.extend(b" \xff\n");
        let said = read(&*strange, Processors::FromHeader).expect_err("19 fields").to_string();
        assert_eq!(said, "line 5: 19 fields: expected 18");
    }

    #[test]
    fn jobs_go_to_the_partitions_of_their_numbers() {
        let to = |queue: i64, partition: i64| {
            let good = record("10", "100", "4", "8", "200");
            good.replace("7 -1 -1 -1 -1", &format!("7 -1 -1 {queue} {partition}"))
        };
        let text = format!("{HEADER}{}{}{}", to(1, 2), to(2, 1), to(-1, -1));
        let gone = |field| {
            let named =
                ["1=debug", "2=long", "7=long"].map(|text| Destination::parse(text).unwrap());
            let destinations = Destinations { field, named: named.into() };
            let trace = read_to(text.as_bytes(), Processors::FromHeader, &destinations);
            let trace = trace.expect("a trace");
            assert_eq!(trace.partitions, ["debug", "long"]);
            assert_eq!(trace.unused_numbers, [7]);
            trace.jobs.iter().map(|job| job.partition).collect::<Vec<_>>()
        };
        assert_eq!(gone(Field::Queue), [Some(0), Some(1), None]);
        assert_eq!(gone(Field::Partition), [Some(1), Some(0), None]);
    }

    #[test]
    fn gzip_is_read_like_plain_text_and_a_cut_stream_names_its_line() {
        let text = format!("{HEADER}{}", record("10", "100", "4", "8", "200").repeat(2_000));
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).expect("in memory");
        let packed = encoder.finish().expect("in memory");
        let read = |bytes: &[u8]| read(bytes, Processors::FromHeader);
        assert_eq!(read(&packed).expect("gzip"), read(text.as_bytes()).expect("plain text"));
        let said = read(&packed[..packed.len() / 2]).expect_err("half of it").to_string();
        assert!(said.starts_with("line "), "{said}");
    }

    #[test]
    fn bad_lines_are_named_by_number_value_and_what_would_be_right() {
        let good = record("10", "100", "4", "8", "200");
        let after = |line: &str| fault(&format!("{HEADER}{good}{line}"));
        let table = [
            (after("2 11 -1 100\n"), "line 6: 4 fields: expected 18"),
            (after("2\n"), "line 6: 1 field: expected 18"),
            (
                after(&record("9", "100", "4", "8", "200")),
                "line 6: submit time 9 before 10: expected lines in order of submission",
            ),
            (
                after(&record("-5", "100", "4", "8", "200")),
                "line 6: submit time -5: expected seconds from 0 to 100000000000",
            ),
            (
                after(&record("11", "-7", "4", "8", "200")),
                "line 6: run time -7: expected seconds from 0 to 4294967295, or -1 where it is not known",
            ),
            (
                after(&record("11", "7", "4", "8", "-200")),
                "line 6: requested time -200: expected seconds from 0 to 4294967295, or -1 where it is not known",
            ),
            (
                after(&record("11", "7", "4", "129", "200")),
                "line 6: 129 processors: expected at most the machine's 128",
            ),
            (
                after(&record("soon", "7", "4", "8", "200")),
                "line 6: field 2 \"soon\": expected a number",
            ),
            (
                after(&record("1.5", "7", "4", "8", "200")),
                "line 6: submit time \"1.5\": expected a whole number",
            ),
            (
                after(&record("11", "7", "4", "-7", "200")),
                "line 6: requested processors -7: expected at most 4294967295, or -1 where they are not known",
            ),
            (after(&good.replace("-1\n", "-1 -1 -1\n")), "line 6: 20 fields: expected 18"),
            (after(&good.replace("-1\n", "-\n")), "line 6: field 18 \"-\": expected a number"),
            (after(&good.replacen('1', "one", 1)), "line 6: field 1 \"one\": expected a number"),
            (
                after(&good.replace(' ', ";")),
                "line 6: 1 field: expected 18 that are parted by blanks, not by ';'",
            ),
            (
                fault(&good),
                "line 1: no MaxProcs or MaxNodes in the comments before the first job: expected one, or --nodes",
            ),
            (
                fault(&format!("; MaxProcs: many\n{good}")),
                "line 2: no MaxProcs or MaxNodes in the comments before the first job: expected one, or --nodes",
            ),
            (after(&"7".repeat(5_000)), "line 6: expected at most 4095 bytes in a line"),
            (fault(HEADER), "no job to replay: expected one with a run time and processors"),
        ];
        for (said, expected) in table {
            assert_eq!(said, expected);
        }
    }
}
