//! The lines of one listing: made job by job as the jobs come, and put into order at the end.

use super::fields::JobRow;
use super::sort::JobOrder;
use super::steps;
use super::{Columns, Listing};
use crate::output::Moment;
use wire::view::JobView;

/// The expected length of a line.
const LINE_BYTES: usize = 96;

/// The bytes that a cell counts for at least. A cell that is cut to nothing has cost time too.
const CELL_BYTES: usize = 16;

/// The text of a listing that grows job by job.
pub struct Page<'a> {
    listing: &'a Listing,
    moment: Moment<'a>,
    /// The header, and the lines in the order in which they came.
    text: String,
    /// The end of each line in `text`.
    ends: Vec<usize>,
    /// The length of the header in `text`.
    header_len: usize,
    order: JobOrder,
    cell: String,
    cell_count: usize,
    bytes_max: usize,
}

impl<'a> Page<'a> {
    pub(super) fn new(listing: &'a Listing, moment: Moment<'a>, bytes_max: usize) -> Self {
        let mut text = String::new();
        if listing.is_dated() {
            text.push_str(&moment.date_line());
            text.push('\n');
        }
        if !listing.options.no_header {
            match &listing.columns {
                Columns::Jobs(format) => format.push_header_within(bytes_max, &mut text),
                Columns::Steps(format) => format.push_header_within(bytes_max, &mut text),
            }
        }
        Self {
            listing,
            moment,
            header_len: text.len(),
            text,
            ends: Vec::new(),
            order: JobOrder::new(&listing.sort),
            cell: String::new(),
            cell_count: 0,
            bytes_max,
        }
    }

    /// Reserves memory for this many lines.
    pub fn expect(&mut self, lines: usize) {
        self.text.reserve(lines.saturating_mul(LINE_BYTES).min(self.bytes_max));
        self.ends.reserve(lines);
        self.order.expect(lines);
    }

    /// Whether the page is longer than `bytes_max`. Nothing more is added then.
    pub fn is_full(&self) -> bool {
        self.text.len() > self.bytes_max || self.cell_count > self.bytes_max / CELL_BYTES
    }

    pub fn push(&mut self, job: &JobView) {
        // A line may be megabytes, by its columns and their widths.
        if self.is_full() {
            return;
        }
        let format = match &self.listing.columns {
            Columns::Jobs(_) => return self.push_job(job),
            Columns::Steps(format) => format,
        };
        for step in job.steps.iter().filter(|step| step.end.is_none()) {
            if self.is_full() {
                return;
            }
            let (most, moment) = (self.bytes_max, self.moment);
            steps::push(most, &mut self.text, &mut self.cell, format, job, step, moment);
            self.cell_count += format.cells.len();
        }
    }

    fn push_job(&mut self, job: &JobView) {
        let (options, moment) = (&self.listing.options, self.moment);
        if options.start && !job.state.is_waiting() {
            return;
        }
        let pending = job.array.as_ref().and_then(|array| array.pending.as_ref());
        match pending.filter(|_| options.expand_arrays) {
            Some(indices) => {
                for index in indices.iter() {
                    if self.is_full() {
                        return;
                    }
                    self.push_row(&JobRow { job, task: Some(index), moment });
                }
            }
            None => self.push_row(&JobRow { job, task: None, moment }),
        }
    }

    fn push_row(&mut self, row: &JobRow<'_>) {
        let Columns::Jobs(format) = &self.listing.columns else { return };
        let (most, text) = (self.bytes_max, &mut self.text);
        format.push_within(most, text, &mut self.cell, |field, cell| (field.render)(row, cell));
        self.cell_count += format.cells.len();
        self.ends.push(self.text.len());
        self.order.push(row);
    }

    /// The whole text; `None` if it is longer than `bytes_max`.
    pub fn finish(self) -> Option<String> {
        if self.is_full() {
            return None;
        }
        let Self { text, ends, header_len, order, .. } = self;
        let Some(order) = order.finish() else { return Some(text) };
        let mut sorted = String::with_capacity(text.len());
        sorted.push_str(&text[..header_len]);
        for line in order {
            let begin = if line == 0 { header_len } else { ends[line - 1] };
            sorted.push_str(&text[begin..ends[line]]);
        }
        Some(sorted)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Listing, Options};
    use super::*;
    use crate::output::samples::{alice, at, bob, moment, pending, sweep_pending};
    use model::reason::Reason;

    fn jobs() -> Vec<JobView> {
        let names = ["c", "a", "b", "a", "d"];
        let owners = [alice(), bob(), alice(), bob(), bob()];
        let numbered = (1..).zip(names).zip(owners);
        numbered.map(|((id, name), owner)| pending(id, name, owner, Reason::Priority)).collect()
    }

    fn page(options: &Options, jobs: &[JobView], bytes_max: usize) -> Option<String> {
        let listing = Listing::new(options.clone()).expect("a good sort");
        let mut page = listing.page(moment(at(1, 0, 0)), bytes_max);
        jobs.iter().for_each(|job| page.push(job));
        page.finish()
    }

    #[test]
    fn lines_are_sorted_in_whatever_order_jobs_come() {
        let table = [
            ("j", "2a4a3b1c5d"),
            ("-j", "5d1c3b2a4a"),
            ("u,-j,j", "1c3b5d2a4a"),
            ("", "1c2a3b4a5d"),
        ];
        for (sort, expected) in table {
            let options = Options {
                sort: Some(sort.into()),
                format: Some("%i%j".into()),
                no_header: true,
                ..Options::default()
            };
            let mut jobs = jobs();
            for _ in 0..jobs.len() {
                jobs.rotate_left(1);
                let text = page(&options, &jobs, usize::MAX).expect("within the limit");
                assert_eq!(text.replace('\n', ""), expected, "-S {sort}");
            }
        }
    }

    #[test]
    fn a_page_beyond_its_limit_gives_nothing() {
        let jobs = [jobs(), vec![sweep_pending()]].concat();
        let expanded = Options { expand_arrays: true, ..Options::default() };
        let whole = page(&expanded, &jobs, usize::MAX).expect("within the limit");
        let enough = whole.lines().count() * 8 * CELL_BYTES;
        assert_eq!(page(&expanded, &jobs, enough).as_deref(), Some(whole.as_str()));
        for less in [0, 100, whole.len() - 1] {
            assert_eq!(page(&expanded, &jobs, less), None, "{less}");
        }
        // Empty cells count as well.
        let nothing = Options { format: Some("%s".repeat(500)), ..Options::default() };
        assert_eq!(page(&nothing, &jobs, usize::MAX).map(|text| text.len()), Some(jobs.len() + 1));
        assert_eq!(page(&nothing, &jobs, enough), None);
    }

    #[test]
    fn nothing_is_added_to_a_page_beyond_its_limit() {
        let format = Some("%4096i".repeat(1000));
        let listing = Listing::new(Options { format, no_header: true, ..Options::default() });
        let listing = listing.expect("a good sort");
        let mut page = listing.page(moment(at(1, 0, 0)), 1000);
        jobs().iter().for_each(|job| page.push(job));
        assert_eq!((page.is_full(), page.ends.len()), (true, 1), "one line is beyond it already");
    }

    #[test]
    fn a_line_breaks_off_at_the_limit_of_its_page() {
        let listing = |steps: bool, no_header: bool| {
            let format = Some("%4096i".repeat(1000));
            Listing::new(Options { format, steps, no_header, ..Options::default() })
        };
        for (steps, no_header) in [(false, false), (false, true), (true, false)] {
            let listing = listing(steps, no_header).expect("a good sort");
            let mut page = listing.page(moment(at(1, 0, 0)), 100_000);
            jobs().iter().for_each(|job| page.push(job));
            assert!(page.is_full() && page.text.len() < 110_000, "{}", page.text.len());
            assert_eq!(page.finish(), None);
        }
    }

    #[test]
    fn long_and_repeated_listings_begin_with_the_time() {
        let dated = |long, repeated, no_header| {
            let options = Options { long, repeated, no_header, ..Options::default() };
            let text = page(&options, &jobs(), usize::MAX).expect("within the limit");
            text.starts_with(&moment(at(1, 0, 0)).date_line())
        };
        assert!(dated(true, false, false) && dated(false, true, true) && dated(true, true, false));
        assert!(!dated(false, false, false) && !dated(true, true, true));
    }
}
