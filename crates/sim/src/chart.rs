//! Charts of a replay as SVG files: utilisation, queue and waits over time, and a Gantt chart of a small trace.

use crate::history::{Bar, History, Moment};
use model::time::Timestamp;
use std::collections::HashMap;
use std::fmt::Write;

/// The size of a chart, and the margins of its plot, pixels.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 40.0;

/// Between a text beside the plot and what it is beside.
const GAP: f64 = 6.0;

/// Points of a line; what happens between two of them is averaged.
const POINTS: usize = 400;

/// Nodes that a Gantt chart has room for.
const ROWS_MAX: usize = 256;

/// The files of all charts that a replay may have.
pub const NAMES: [&str; 4] = ["utilisation.svg", "queue.svg", "waits.svg", GANTT];

const GANTT: &str = "gantt.svg";

/// How wide a character of a node's name is at most, and how many of them are shown.
const CHARACTER: f64 = 8.0;
const NAME_CHARACTERS_MAX: usize = 32;

/// The charts by the names of their files.
pub fn files(history: &History) -> Vec<(&'static str, String)> {
    let Some(period) = Period::of(history) else { return Vec::new() };
    let all = history.processors.max(1) as f64;
    let busy = period.averages(history, |moment| 100.0 * moment.busy_processors as f64 / all);
    let waiting = period.averages(history, |moment| moment.waiting_jobs as f64);
    let hours: Vec<(Timestamp, f64)> =
        history.waits.iter().map(|(submit, wait_s)| (*submit, wait_s / 3600.0)).collect();
    let mut files = vec![
        ("utilisation.svg", line_chart("Utilisation, %", &period, &busy)),
        ("queue.svg", line_chart("Jobs that wait", &period, &waiting)),
        ("waits.svg", line_chart("Mean wait by submission, hours", &period, &period.means(&hours))),
    ];
    if !history.bars.is_empty() && history.nodes.len() <= ROWS_MAX {
        files.push((GANTT, gantt(history, &period)));
    }
    files
}

/// The time that a chart shows.
struct Period {
    begin: Timestamp,
    length_s: f64,
}

impl Period {
    /// `None` if no time passed.
    fn of(history: &History) -> Option<Self> {
        let (first, last) = (history.moments.first()?, history.moments.last()?);
        let length_s = last.time.since(first.time).as_secs_f64();
        (length_s > 0.0).then_some(Self { begin: first.time, length_s })
    }

    /// From 0 to 1.
    fn part(&self, time: Timestamp) -> f64 {
        (time.since(self.begin).as_secs_f64() / self.length_s).min(1.0)
    }

    /// The averages over equal stretches of time of what holds from each moment to the next.
    fn averages(&self, history: &History, value: impl Fn(&Moment) -> f64) -> Vec<Option<f64>> {
        let mut sums = vec![0.0; POINTS];
        for pair in history.moments.windows(2) {
            let (mut from, to) =
                (self.part(pair[0].time) * POINTS as f64, self.part(pair[1].time) * POINTS as f64);
            let value = value(&pair[0]);
            for (at, sum) in sums.iter_mut().enumerate().skip(from as usize) {
                if from >= to {
                    break;
                }
                let end = to.min(at as f64 + 1.0);
                *sum += value * (end - from).max(0.0);
                from = end;
            }
        }
        sums.into_iter().map(Some).collect()
    }

    /// The means of the values in equal stretches of time; `None` for a stretch without any.
    fn means(&self, values: &[(Timestamp, f64)]) -> Vec<Option<f64>> {
        let mut sums = vec![(0.0, 0_u32); POINTS];
        for (time, value) in values {
            let at = (self.part(*time) * POINTS as f64) as usize;
            let (sum, count) = &mut sums[at.min(POINTS - 1)];
            *sum += value;
            *count += 1;
        }
        let mean = |(sum, count): (f64, u32)| (count > 0).then(|| sum / f64::from(count));
        sums.into_iter().map(mean).collect()
    }

    /// The unit of the time axis: its name and its seconds.
    fn unit(&self) -> (&'static str, f64) {
        const UNITS: [(&str, f64); 3] = [("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)];
        let large = UNITS.into_iter().find(|(_, seconds)| self.length_s >= 3.0 * seconds);
        large.unwrap_or(("seconds", 1.0))
    }
}

/// Distances between marks of an axis: at most so many fit up to `most`.
fn mark_step(most: f64) -> f64 {
    const MARKS_MAX: f64 = 8.0;
    let least = (most / MARKS_MAX).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= least).unwrap_or(10.0 * power)
}

/// A mark as it is printed: sums of steps are not exact.
fn without_noise(mark: f64) -> f64 {
    (mark * 1e6).round() / 1e6
}

fn begin_svg(title: &str, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"16\">{title}</text>\n"
    )
}

/// The marks of the time axis at the lower end of a plot that begins at `left`.
fn time_axis(svg: &mut String, period: &Period, left: f64, bottom: f64) {
    let (unit, seconds) = period.unit();
    let most = period.length_s / seconds;
    let step = mark_step(most);
    let mut at = 0.0;
    while at <= most {
        let x = left + at / most * (WIDTH - left - RIGHT);
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 16.0,
            without_noise(at)
        );
        at += step;
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{unit}</text>",
        WIDTH - RIGHT,
        bottom + 32.0
    );
}

fn line_chart(title: &str, period: &Period, values: &[Option<f64>]) -> String {
    let most = values.iter().flatten().copied().fold(0.0, f64::max);
    let most = if most > 0.0 { most } else { 1.0 };
    let bottom = HEIGHT - BOTTOM;
    let y = |value: f64| bottom - value / most * (bottom - TOP);
    let mut svg = begin_svg(title, HEIGHT);
    let step = mark_step(most);
    let mut mark = 0.0;
    while mark <= most {
        let at = y(mark);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - GAP,
            at + 4.0,
            without_noise(mark)
        );
        mark += step;
    }
    time_axis(&mut svg, period, LEFT, bottom);
    let width = (WIDTH - LEFT - RIGHT) / POINTS as f64;
    let points: Vec<String> = values
        .iter()
        .enumerate()
        .filter_map(|(at, value)| {
            Some(format!("{:.1},{:.1}", LEFT + (at as f64 + 0.5) * width, y((*value)?)))
        })
        .collect();
    let _ = writeln!(
        svg,
        "<polyline fill=\"none\" stroke=\"#1b6ca8\" stroke-width=\"1.5\" points=\"{}\"/>\n</svg>",
        points.join(" ")
    );
    svg
}

/// A row for each node, and a bar for each attempt on each of its nodes.
fn gantt(history: &History, period: &Period) -> String {
    const ROW: f64 = 14.0;
    let bottom = TOP + ROW * history.nodes.len() as f64;
    let mut svg = begin_svg("Jobs on nodes", bottom + BOTTOM);
    let names: Vec<String> = history.nodes.iter().map(|name| shortened(name)).collect();
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let left = LEFT.max(2.0 * GAP + CHARACTER * longest as f64);
    let plot = Plot { period, left };
    let rows: HashMap<&str, usize> =
        history.nodes.iter().enumerate().map(|(row, name)| (name.as_str(), row)).collect();
    for (row, name) in names.iter().enumerate() {
        let y = TOP + ROW * (row as f64 + 0.8);
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>",
            left - GAP,
            escaped(name)
        );
    }
    for bar in &history.bars {
        for row in bar.nodes.iter().filter_map(|name| rows.get(name.as_str())) {
            draw_bar(&mut svg, bar, &plot, TOP + ROW * *row as f64, ROW - 1.0);
        }
    }
    time_axis(&mut svg, period, left, bottom);
    svg.push_str("</svg>\n");
    svg
}

/// The name, or the end of a long one: names differ there.
fn shortened(name: &str) -> String {
    let count = name.chars().count();
    if count <= NAME_CHARACTERS_MAX {
        return name.to_owned();
    }
    let end: String = name.chars().skip(count - NAME_CHARACTERS_MAX + 1).collect();
    format!("…{end}")
}

/// A plot over time that begins at `left`.
struct Plot<'p> {
    period: &'p Period,
    left: f64,
}

impl Plot<'_> {
    fn x(&self, time: Timestamp) -> f64 {
        self.left + self.period.part(time) * (WIDTH - self.left - RIGHT)
    }
}

fn draw_bar(svg: &mut String, bar: &Bar, plot: &Plot<'_>, y: f64, height: f64) {
    let (from, to) = (plot.x(bar.start), plot.x(bar.end));
    // Neighbouring lines of the trace have colours that are far apart.
    let hue = bar.line * 137 % 360;
    let _ = writeln!(
        svg,
        "<rect x=\"{from:.2}\" y=\"{y:.1}\" width=\"{:.2}\" height=\"{height}\" \
         fill=\"hsl({hue},60%,60%)\"><title>line {}: {} s</title></rect>",
        (to - from).max(0.5),
        bar.line,
        bar.end.since(bar.start).as_secs()
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use roxmltree::Document;

    /// The namespace of SVG: without it a browser shows a file's text.
    const SVG: &str = "http://www.w3.org/2000/svg";

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    fn history() -> History {
        let moment = |time, busy_processors, waiting_jobs| Moment {
            time: at(time),
            busy_processors,
            waiting_jobs,
        };
        History {
            processors: 4,
            nodes: vec!["n1".into(), "n<2>".into()],
            // Half of the processors for the first half of the time, none for the second.
            moments: vec![moment(0, 2, 3), moment(400, 0, 0), moment(800, 0, 0)],
            waits: vec![(at(0), 7200.0), (at(1), 3600.0)],
            bars: vec![Bar { line: 5, start: at(0), end: at(400), nodes: vec!["n1".into()] }],
        }
    }

    #[test]
    fn averages_are_weighted_by_time_and_means_by_job() {
        let history = history();
        let period = Period::of(&history).expect("time passed");
        let busy = period.averages(&history, |moment| moment.busy_processors as f64);
        let close = |a: Option<f64>, b: f64| a.is_some_and(|a| (a - b).abs() < 1e-9);
        assert!(busy[..POINTS / 2].iter().all(|value| close(*value, 2.0)));
        assert!(busy[POINTS / 2..].iter().all(|value| close(*value, 0.0)));
        let means = period.means(&history.waits);
        assert_eq!((means[0], means[1]), (Some(5400.0), None));
    }

    #[test]
    fn charts_are_whole_and_names_are_escaped() {
        let files = files(&history());
        let names: Vec<_> = files.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["utilisation.svg", "queue.svg", "waits.svg", "gantt.svg"]);
        for (name, svg) in &files {
            let chart = Document::parse(svg).unwrap_or_else(|e| panic!("{name}: {e}: {svg}"));
            assert!(chart.root_element().has_tag_name((SVG, "svg")), "{name}: {svg}");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{name}: {svg}");
            let lines = chart.descendants().filter(|one| one.has_tag_name((SVG, "polyline")));
            assert_eq!(lines.count(), usize::from(*name != "gantt.svg"), "{name}: {svg}");
        }
        let gantt = Document::parse(&files[3].1).expect("XML");
        let texts: Vec<_> = gantt.descendants().filter_map(|one| one.text()).collect();
        assert!(texts.contains(&"n<2>") && texts.contains(&"line 5: 400 s"), "{texts:?}");
        assert!(files_of_nothing().is_empty());
    }

    #[test]
    fn names_of_nodes_have_room_and_the_end_of_a_long_one_is_shown() {
        let long = format!("{}-7", "x".repeat(60));
        let names = ["gpu-a100-rack12-node001".to_owned(), long];
        let gantt = files(&History { nodes: names.into(), ..history() }).pop().expect("a chart").1;
        let gantt = Document::parse(&gantt).expect("XML");
        let of = |end: &str| {
            let is_it = |one: &roxmltree::Node<'_, '_>| {
                one.has_tag_name((SVG, "text"))
                    && one.text().is_some_and(|text| text.ends_with(end))
            };
            let name = gantt.descendants().find(is_it).expect("a name");
            let x: f64 = name.attribute("x").and_then(|x| x.parse().ok()).expect("a place");
            (name.text().expect("a name").chars().count(), x)
        };
        let ((whole, x), (part, _)) = (of("node001"), of("-7"));
        assert_eq!((whole, part), (23, NAME_CHARACTERS_MAX));
        assert!(x >= CHARACTER * NAME_CHARACTERS_MAX as f64, "{x}");
        let bar = gantt.descendants().filter(|one| one.has_tag_name((SVG, "rect"))).nth(1);
        assert_eq!(bar, None, "nothing ran on these nodes");
    }

    fn files_of_nothing() -> Vec<(&'static str, String)> {
        files(&History::default())
    }

    #[test]
    fn marks_of_an_axis_are_round_numbers() {
        for (most, step) in [(100.0, 20.0), (8.0, 1.0), (0.5, 0.1), (3000.0, 500.0)] {
            assert!((mark_step(most) - step).abs() < 1e-9, "{most}: {}", mark_step(most));
        }
    }
}
