use super::draw::draw;
use super::look::{Reply, Request};
use super::row_order::{self, JobSort};
use super::screen::{Effect, Screen};
use super::snapshot::{JobCounts, Snapshot};
use super::{plain, table};
use model::amount::Bytes;
use model::node::{NodeConfig, NodeGres};
use model::reason::Reason;
use model::run::{JobState, Launch, LaunchKind};
use model::time::{TimeLimit, Timestamp};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::json;
use wire::view::{ClusterView, JobView, NodeView};

const NOW: Timestamp = Timestamp::from_secs(1_794_703_909);

fn job(id: u32, name: &str, user: &str, state: JobState) -> JobView {
    let owner = json!({
        "name": user, "uid": 1001, "gid": 1001, "group": user, "groups": [], "role": "user"
    });
    let spec = json!({
        "name": name, "owner": owner, "components": [{"request": model::request::Request::default()}],
        "launch": Launch::empty(LaunchKind::Batch), "kill_on_invalid_dependency": false, "nice": 0,
        "requeue": true, "submit_line": "", "submit_host": "", "submit_sid": 0
    });
    let view = json!({
        "id": id, "name": name, "spec": spec, "state": state, "reason": Reason::Resources,
        "partition": "gpu", "account": "physics", "qos": "normal", "priority": 1, "submit": NOW,
        "time_limit": TimeLimit::Minutes(60), "restarts": 0,
        "nodes": model::range::Range::exactly(1_u32), "cpus": 1, "tasks": 1,
        "tres": model::tres::Tres::new()
    });
    serde_json::from_value(view).expect("a job")
}

fn node(name: &str) -> NodeView {
    let mut config = NodeConfig::plain(name, 32, Bytes::from_mib(1 << 18));
    config.gres.push(NodeGres::plain("gpu", Some("h100"), 8));
    let used = json!([{"name": "gpu", "kind": "h100", "count": 3}]);
    let view = json!({
        "config": config, "slot": "up", "facts": model::node::NodeFacts::default(),
        "cpus_allocated": 16, "memory_allocated": Bytes::from_mib(1 << 16), "gres_used": used,
        "job_count": 2, "completing": false, "partitions": ["gpu"]
    });
    serde_json::from_value(view).expect("a node")
}

fn screen(nodes: Vec<NodeView>, jobs: Vec<JobView>) -> Screen {
    let cluster = ClusterView {
        name: "lab".into(),
        now: NOW,
        nodes,
        partitions: Vec::new(),
        topology: None,
        notices: Vec::new(),
        proxy_url: None,
    };
    let mut screen = Screen::new("alice".into(), false);
    screen.tz = jiff::tz::TimeZone::UTC;
    screen.show(Snapshot::new(cluster, jobs, None, None));
    screen
}

fn some() -> Screen {
    let mut running = job(7, "train", "alice", JobState::Running);
    running.start = Some(Timestamp::from_secs(NOW.secs() - 3700));
    let mut waits = job(8, "sweep", "bob", JobState::Pending);
    waits.start = Some(Timestamp::from_secs(NOW.secs() + 7200));
    screen(vec![node("n1"), node("n2")], vec![waits, running])
}

/// The lines of a frame on a terminal of this size.
fn frame(screen: &mut Screen, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal.draw(|frame| draw(screen, frame.area(), frame.buffer_mut())).expect("drawn");
    terminal.backend().to_string()
}

fn press(screen: &mut Screen, code: KeyCode) -> Effect {
    screen.key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn write(screen: &mut Screen, text: &str) {
    text.chars().for_each(|c| assert_eq!(press(screen, KeyCode::Char(c)), Effect::None));
}

#[test]
fn frame_has_nodes_with_gpus_jobs_with_reasons_and_starts_and_the_log() {
    let mut screen = some();
    assert_eq!(screen.scope().log, Some(model::id::JobId(7)), "the running job comes first");
    screen.show_log(model::id::JobId(7), vec!["epoch 1".into(), "epoch 2".into()]);
    let text = plain(&mut screen, 100, 30);
    let has = |line: &str| assert!(text.lines().any(|l| l.contains(line)), "{line}:\n{text}");
    has("lab  nodes 2/2  CPUs 32/64  GPUs 6/16  jobs 1 running, 1 waiting");
    has("n1         mix     [###...] 16/32    [##....] 3/8    -    64/256");
    has("1:01:40");
    has("~02:51");
    has("(Resources)");
    has("Log of job 7 (train)");
    has("epoch 2");
    assert!(!text.contains("q quit"), "{text}");
}

#[test]
fn frame_fits_every_size() {
    for (width, height) in [(80, 24), (40, 10), (200, 60), (20, 5), (12, 3), (1, 1), (3, 2)] {
        let mut screen = some();
        let text = frame(&mut screen, width, height);
        if width >= 40 && height >= 10 {
            assert!(text.contains("train") && text.contains("alice"), "{text}");
            assert!(text.contains("q quit"), "{text}");
        }
        press(&mut screen, KeyCode::Char('?'));
        frame(&mut screen, width, height);
        press(&mut screen, KeyCode::Char('x'));
        press(&mut screen, KeyCode::Tab);
        frame(&mut screen, width, height);
    }
}

#[test]
fn narrow_table_leaves_out_the_columns_of_high_rank() {
    let titles = |width| {
        let columns = table::fitting(&super::columns::JOBS, width);
        columns.iter().map(|(column, _)| column.title).collect::<Vec<_>>()
    };
    assert_eq!(titles(10), ["JOB"]);
    assert_eq!(titles(30), ["JOB", "ST", "USER"]);
    assert_eq!(
        titles(80),
        ["JOB", "ST", "USER", "NAME", "TIME", "START", "GPUS", "NODES (REASON)"]
    );
    assert_eq!(titles(200).len(), super::columns::JOBS.len());
}

#[test]
fn only_visible_rows_are_drawn_and_the_selected_one_is_among_them() {
    let many = |count: u32| (0..count).map(|n| job(n + 1, "sweep", "bob", JobState::Pending));
    let nodes = (0..1000).map(|n| node(&format!("n{n}"))).collect();
    let mut screen = screen(nodes, many(10_000).collect());
    frame(&mut screen, 80, 24);
    let visible = screen.jobs.visible;
    assert!((1..20).contains(&visible), "{visible}");
    press(&mut screen, KeyCode::End);
    let text = frame(&mut screen, 80, 24);
    assert!(text.contains("10000 "), "{text}");
    press(&mut screen, KeyCode::PageUp);
    press(&mut screen, KeyCode::Home);
    let text = frame(&mut screen, 80, 24);
    assert!(text.contains("\"1          PD bob"), "{text}");
}

#[test]
fn keys_ask_for_what_they_say_and_a_cancel_is_confirmed() {
    let mut screen = some();
    assert_eq!(press(&mut screen, KeyCode::Char('c')), Effect::None);
    assert!(frame(&mut screen, 80, 24).contains("Cancel job 7? y/n"));
    assert_eq!(press(&mut screen, KeyCode::Char('n')), Effect::None);
    press(&mut screen, KeyCode::Char('c'));
    let Effect::Ask(Request::Cancel { shown, .. }) = press(&mut screen, KeyCode::Char('y')) else {
        panic!("a cancel");
    };
    assert_eq!(shown, "7");
    press(&mut screen, KeyCode::Char('h'));
    assert!(frame(&mut screen, 80, 24).contains("only a job that waits is held"));
    press(&mut screen, KeyCode::Down);
    let held = press(&mut screen, KeyCode::Char('h'));
    assert!(matches!(held, Effect::Ask(Request::Hold { .. })), "{held:?}");
    let explained = press(&mut screen, KeyCode::Char('e'));
    assert_eq!(explained, Effect::Ask(Request::Explain("8".into())));
    screen.take(Reply::Explained("It waits for GPUs.".into()));
    assert!(frame(&mut screen, 80, 24).contains("It waits for GPUs."));
    press(&mut screen, KeyCode::Esc);
    assert_eq!(press(&mut screen, KeyCode::Char('q')), Effect::Quit);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(screen.key(interrupt), Effect::Quit);
}

#[test]
fn filter_and_sort_choose_the_rows() {
    let mut screen = some();
    press(&mut screen, KeyCode::Char('/'));
    write(&mut screen, "BOB");
    let text = frame(&mut screen, 80, 24);
    assert!(text.contains("sweep") && !text.contains(" train "), "{text}");
    press(&mut screen, KeyCode::Esc);
    assert!(frame(&mut screen, 80, 24).contains(" train "));
    let jobs = [
        job(3, "b", "zoe", JobState::Pending),
        job(1, "c", "ada", JobState::Pending),
        job(2, "a", "bob", JobState::Running),
    ];
    let ids = |sort| {
        let order = row_order::jobs(&jobs, "", sort);
        order.into_iter().map(|at| jobs[at as usize].id.0).collect::<Vec<_>>()
    };
    assert_eq!(ids(JobSort::Queue), [2, 1, 3]);
    assert_eq!(ids(JobSort::Id), [1, 2, 3]);
    assert_eq!(ids(JobSort::User), [1, 2, 3]);
    assert_eq!(ids(JobSort::Name), [2, 3, 1]);
    assert_eq!(row_order::jobs(&jobs, "resources", JobSort::Id).len(), 2);
}

#[test]
fn head_of_the_queue_or_its_end_is_asked_for_by_filter_and_order() {
    let cluster = || ClusterView {
        name: "lab".into(),
        now: NOW,
        nodes: vec![node("n1")],
        partitions: Vec::new(),
        topology: None,
        notices: Vec::new(),
        proxy_url: None,
    };
    let jobs = |count: u32| -> Vec<JobView> {
        (1..=count).map(|id| job(id, "sweep", "bob", JobState::Pending)).collect()
    };
    let mut screen = Screen::new("alice".into(), false);
    let counts =
        |from_end| Some(JobCounts { running: 0, waiting: 400, matching: Some(400), from_end });
    screen.show(Snapshot::new(cluster(), jobs(256), counts(false), None));
    assert_eq!(screen.scope().rows, Some(256));
    let text = frame(&mut screen, 100, 30);
    assert!(text.contains("0 running, 400 waiting") && text.contains("Jobs 400 "), "{text}");
    (0..250).for_each(|_| assert_eq!(press(&mut screen, KeyCode::Down), Effect::None));
    assert_eq!(screen.scope().rows, Some(512), "rows that come next are loaded before");
    press(&mut screen, KeyCode::Home);
    press(&mut screen, KeyCode::End);
    press(&mut screen, KeyCode::End);
    let asked = |screen: &Screen| (screen.scope().rows, screen.scope().from_end);
    assert_eq!(asked(&screen), (Some(256), true), "the last page, and not all");
    let last: Vec<JobView> = jobs(400).split_off(144);
    let selected = |screen: &Screen| screen.job().map(|job| job.id.0);
    screen.show(Snapshot::new(cluster(), last, counts(true), None));
    assert_eq!(selected(&screen), Some(400), "the end that was asked for");
    assert!(frame(&mut screen, 100, 30).contains("Jobs 400 "));
    (0..250).for_each(|_| assert_eq!(press(&mut screen, KeyCode::Up), Effect::None));
    assert_eq!(asked(&screen), (Some(512), true), "rows that come before are loaded before");
    screen.show(Snapshot::new(cluster(), jobs(400), counts(true), None));
    assert_eq!(selected(&screen), Some(150), "it stays selected");
    press(&mut screen, KeyCode::End);
    screen.show(Snapshot::new(cluster(), jobs(400).split_off(144), counts(true), None));
    press(&mut screen, KeyCode::Home);
    assert_eq!(asked(&screen), (Some(256), false));
    screen.show(Snapshot::new(cluster(), jobs(256), counts(false), None));
    assert_eq!(selected(&screen), Some(1), "the head, though both have the row above");
    assert_eq!((screen.scope().rows, screen.scope().filter.as_str()), (Some(256), ""));
    press(&mut screen, KeyCode::Char('/'));
    write(&mut screen, "Swe");
    press(&mut screen, KeyCode::Enter);
    assert_eq!((screen.scope().rows, screen.scope().filter.as_str()), (Some(256), "Swe"));
    let counts =
        Some(JobCounts { running: 3, waiting: 9000, matching: Some(300), from_end: false });
    screen.show(Snapshot::new(cluster(), jobs(256), counts, None));
    let text = frame(&mut screen, 100, 30);
    assert!(text.contains("3 running, 9000 waiting") && text.contains("Jobs 300 "), "{text}");
    press(&mut screen, KeyCode::Char('s'));
    let scope = screen.scope();
    assert_eq!((scope.rows, scope.filter.as_str()), (Some(256), "Swe"));
    assert_eq!(scope.order, wire::client::QueueOrder::Id, "another order");
}

#[test]
fn selected_job_stays_selected_when_another_comes_before_it() {
    let mut screen = some();
    press(&mut screen, KeyCode::Down);
    assert_eq!(screen.job().map(|job| job.id.0), Some(8));
    let more = ["first", "second"].map(|name| job(1, name, "carol", JobState::Running));
    let jobs = more.into_iter().chain([job(8, "sweep", "bob", JobState::Pending)]).collect();
    let cluster = ClusterView {
        name: "lab".into(),
        now: NOW,
        nodes: vec![node("n1")],
        partitions: Vec::new(),
        topology: None,
        notices: Vec::new(),
        proxy_url: None,
    };
    screen.take(Reply::Snapshot(Box::new(Snapshot::new(cluster, jobs, None, None))));
    assert_eq!(screen.job().map(|job| job.id.0), Some(8));
    screen.take(Reply::Lost("no server".into()));
    assert!(frame(&mut screen, 80, 24).contains("no server; looking again"));
}

#[test]
fn control_characters_of_names_do_not_reach_the_terminal() {
    let bad = job(9, "a\u{1b}[31mb\nc", "alice", JobState::Pending);
    let text = plain(&mut screen(vec![node("n1")], vec![bad]), 100, 20);
    assert!(!text.contains('\u{1b}'), "{text:?}");
    assert!(text.contains("a[31mbc"), "{text}");
}
