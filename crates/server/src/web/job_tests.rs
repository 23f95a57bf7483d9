//! One job by its names: a task of an array and no other, one that has left memory, and what names none.

use super::array_tasks::COUNTED_MAX;
use super::job_end::RECORDS_MAX;
use super::tests::{Browser, USER};
use axum::http::StatusCode;
use cluster::Command;
use model::array::IndexSet;
use model::change::{JobChange, JobRef};
use model::id::JobId;
use model::private_data::PrivateKind;
use model::record::{HistoryFilter, JobRecord};
use model::run::Hold;
use model::time::Timestamp;
use serde_json::{Value, json};

const JOBS: &str = "/api/web/jobs";
const HISTORY: &str = "/api/web/history";

/// Beyond all that the journal of a test's server comes to.
const LATE_SEQ: u64 = 1_000_000;

/// Ended jobs leave memory at once.
async fn forget_ended(browser: &Browser) {
    let mut config = (*browser.server.shared.read().config).clone();
    config.parameters.min_job_age_s = 0;
    browser.server.run(Command::Configure(Box::new(config))).await.expect("configured");
    browser.server.shared.books.wait_settled().await;
    browser.server.run(Command::Tick { booked: true }).await.expect("a tick");
}

/// The record of a job that was cancelled.
async fn booked_record(browser: &Browser) -> JobRecord {
    let job = browser.server.submit("name: of-ada").await.expect("a job");
    let cancelled = browser.post(&format!("{JOBS}/{job}/cancel"), &json!({})).await;
    assert_eq!(cancelled.status, StatusCode::OK, "{}", cancelled.text);
    browser.server.shared.books.wait_settled().await;
    let found = browser.server.book_reader().query(&HistoryFilter::default()).expect("the books");
    let [record] = &found[..] else { panic!("{found:?}") };
    record.clone()
}

/// An array of two tasks, of which the first is held and the last runs with the array's own number.
async fn array_with_a_task_of_its_number(browser: &Browser) -> JobId {
    let script = json!({ "script": "#!/bin/sh\n#SBATCH --array=0-1 -n1\nsleep 600\n" });
    let submitted = browser.post("/api/web/submit", &script).await;
    let array = submitted.json()["job"].as_u64().expect("a job");
    let array = JobId(u32::try_from(array).expect("a number"));
    let job = JobRef::tasks(array, IndexSet::from_range(0, 0));
    let change = JobChange::Hold { by: Hold::User };
    browser.server.run(Command::ChangeJob { job, change }).await.expect("held");
    browser.server.node_up().await;
    browser.server.plan();
    array
}

#[tokio::test(flavor = "multi_thread")]
async fn number_of_a_record_is_that_of_one_task_also_where_it_is_the_arrays() {
    let browser = Browser::administering().await;
    let array = array_with_a_task_of_its_number(&browser).await;
    let page = browser.get(&format!("{JOBS}/{array}")).await.json();
    assert_eq!(page["job"]["shown"], format!("{array}_1"), "{page}");
    assert_eq!(page["name"], format!("{array}_1"), "{page}");
    let cancelled = browser.post(&format!("{JOBS}/{array}/cancel"), &json!({})).await;
    assert_eq!(cancelled.status, StatusCode::OK, "{}", cancelled.text);
    let other = browser.get(&format!("{JOBS}/{array}_0")).await.json();
    assert_eq!(other["job"]["shown"], format!("{array}_0"), "{other}");
    assert_eq!(other["job"]["ended"], false, "the question named one task: {other}");
    let whole = browser.post(&format!("{JOBS}/{array}_*/cancel"), &json!({})).await;
    assert_eq!(whole.status, StatusCode::OK, "{}", whole.text);
    let other = browser.get(&format!("{JOBS}/{array}_0")).await.json();
    assert_eq!(other["job"]["ended"], true, "{other}");
}

#[tokio::test(flavor = "multi_thread")]
async fn array_has_its_tasks_by_states_from_memory_and_the_books() {
    let browser = Browser::administering().await;
    let array = array_with_a_task_of_its_number(&browser).await;
    let tasks = async || browser.get(&format!("{JOBS}/{array}/tasks")).await.json();
    let page = tasks().await;
    let count = |page: &Value| -> u64 {
        let states = page["states"].as_array().expect("states");
        states.iter().filter_map(|state| state[1].as_u64()).sum()
    };
    assert_eq!((&page["array"], &page["cut"]), (&json!(array), &json!(false)), "{page}");
    assert_eq!((page["states"][0].clone(), count(&page)), (json!(["PENDING", 1]), 2), "{page}");
    assert!(page["tasks"].to_string().contains(&format!("\"{array}_1\"")), "{page}");
    let whole = browser.post(&format!("{JOBS}/{array}_*/cancel"), &json!({})).await;
    assert_eq!(whole.status, StatusCode::OK, "{}", whole.text);
    let page = tasks().await;
    assert_eq!(count(&page), 2, "each task is counted once: {page}");
    let job = browser.server.submit("name: of-no-array").await.expect("a job");
    let none = browser.get(&format!("{JOBS}/{job}/tasks")).await;
    assert_eq!(none.status, StatusCode::NOT_FOUND, "{}", none.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn task_that_waits_is_shown_and_changed_by_its_own_name() {
    let browser = Browser::administering().await;
    let script = json!({ "script": "#!/bin/sh\n#SBATCH --array=0-3\ntrue\n" });
    let submitted = browser.post("/api/web/submit", &script).await.json();
    let task = format!("{}_2", submitted["job"]);
    let page = browser.get(&format!("{JOBS}/{task}")).await.json();
    assert_eq!((&page["job"]["shown"], &page["name"]), (&json!(task), &json!(task)), "{page}");
    let cancelled = browser.post(&format!("{JOBS}/{task}/cancel"), &json!({})).await;
    assert_eq!(cancelled.status, StatusCode::OK, "{}", cancelled.text);
    let page = browser.get(&format!("{JOBS}/{}", submitted["job"])).await.json();
    assert_eq!(page["job"]["waiting"], true, "the others wait on: {page}");
    let script = browser.get(&format!("{JOBS}/{task}/script")).await.json();
    assert!(script["text"].as_str().is_some_and(|text| text.contains("--array")), "{script}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_names_no_job_is_refused_in_one_line() {
    let browser = Browser::administering().await;
    for name in ["abc", "-1", "0", "99999999999", "3_", "1%27%20OR%201=1"] {
        let refused = browser.get(&format!("{JOBS}/{name}")).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{name}");
        let line = refused.json()["error"].as_str().unwrap_or_default().to_owned();
        assert!(line.contains("names no job: right is"), "{line}");
    }
    let unknown = browser.get(&format!("{JOBS}/4000_3")).await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND, "{}", unknown.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn next_job_is_no_component_of_the_one_before() {
    let browser = Browser::administering().await;
    let script = json!({ "script": "#!/bin/sh\ntrue\n" });
    let first = browser.post("/api/web/submit", &script).await.json()["job"].clone();
    let next = browser.post("/api/web/submit", &script).await.json()["job"].clone();
    assert_eq!(next.as_u64(), first.as_u64().map(|id| id + 1), "{first} {next}");
    let whole = browser.get(&format!("{JOBS}/{next}/script")).await;
    assert_eq!(whole.status, StatusCode::OK, "{}", whole.text);
    let component = format!("{first}+1");
    let script = browser.get(&format!("{JOBS}/{component}/script")).await;
    let shell = browser.post(&format!("{JOBS}/{component}/shell"), &json!({ "rank": 0 })).await;
    for refused in [script, shell] {
        assert_eq!(refused.status, StatusCode::NOT_FOUND, "{}", refused.text);
        assert!(refused.text.contains(&component), "{}", refused.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn job_that_has_left_memory_is_shown_from_the_books_with_the_rights_of_sacct() {
    let browser = Browser::administering().await;
    let job = browser.server.submit("name: of-ada").await.expect("a job");
    let cancelled = browser.post(&format!("{JOBS}/{job}/cancel"), &json!({})).await;
    assert_eq!(cancelled.status, StatusCode::OK, "{}", cancelled.text);
    let before = browser.get(&format!("{JOBS}/{job}")).await.json();
    assert_eq!(before["is_final"], false, "it may be requeued: {before}");
    forget_ended(&browser).await;
    assert!(browser.server.shared.read().job(job).is_none(), "it has left memory");
    let page = browser.get(&format!("{JOBS}/{job}")).await.json();
    for part in ["shown", "name", "user", "state", "account", "partition", "ended"] {
        assert_eq!(page["job"][part], before["job"][part], "{part}: {page}");
    }
    assert_eq!(page["is_final"], true, "{page}");
    let why = page["end"]["why"].to_string();
    assert!(
        why.contains("It has ended: CANCELLED") && why.contains("It was cancelled by"),
        "{why}"
    );
    assert_eq!(page["end"]["why"], before["end"]["why"], "the same as before");
    assert_eq!((&page["may_manage"], &page["may_read"]), (&json!(false), &json!(true)));
    let rows = browser.get(HISTORY).await.json();
    assert_eq!((&rows["rows"][0]["id"], &rows["more"]), (&json!(job), &json!(false)), "{rows}");
    assert_eq!(browser.get(&format!("{HISTORY}?rows=1")).await.json()["more"], true);
}

/// A limit leaves the records that ended last: the array's own is not among them where its task was not the last to end.
#[tokio::test(flavor = "multi_thread")]
async fn number_of_a_large_array_is_that_of_its_own_record_in_the_books() {
    let browser = Browser::administering().await;
    let record = booked_record(&browser).await;
    let array = JobId(4_000);
    let task = |number: u32| JobRecord {
        job: JobId(array.0 + number),
        array_job: Some(array),
        array_task: Some(number),
        end: record.end.map(|end| Timestamp(end.0 + i64::from(number))),
        ..record.clone()
    };
    let tasks: Vec<JobRecord> = (0..=RECORDS_MAX).map(task).collect();
    let books = &browser.server.shared.books;
    books.add(LATE_SEQ, tasks, Vec::new(), Vec::new());
    books.wait_settled().await;
    let page = browser.get(&format!("{JOBS}/{array}")).await.json();
    assert_eq!(page["job"]["shown"], format!("{array}_0"), "{page}");
}

/// What still runs or waits is not left out for tasks of higher indices that have ended.
#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_a_large_array_that_have_not_ended_are_shown_before_those_that_have() {
    let browser = Browser::administering().await;
    let record = booked_record(&browser).await;
    let array = array_with_a_task_of_its_number(&browser).await;
    let ended = |number: u32| JobRecord {
        job: JobId(array.0 + COUNTED_MAX + number),
        array_job: Some(array),
        array_task: Some(number),
        ..record.clone()
    };
    let books = &browser.server.shared.books;
    books.add(LATE_SEQ, (2..COUNTED_MAX + 2).map(ended).collect(), Vec::new(), Vec::new());
    books.wait_settled().await;
    let page = browser.get(&format!("{JOBS}/{array}/tasks")).await.json();
    for task in [0_usize, 1] {
        let row = &page["tasks"][task];
        assert_eq!(row["shown"], format!("{array}_{task}"), "{row}");
        assert_eq!(row["ended"], false, "{row}");
    }
    assert_eq!(page["cut"], true);
}

/// The books have jobs of others: `PrivateData` hides them there too.
#[tokio::test(flavor = "multi_thread")]
async fn ended_jobs_of_others_are_hidden_where_jobs_are_private() {
    let browser = Browser::signed_in(USER).await;
    let job = browser.server.submit("name: of-ada").await.expect("a job");
    let mut config = (*browser.server.shared.read().config).clone();
    let filter = model::change::JobFilter {
        jobs: vec![JobRef::whole(job)],
        ..model::change::JobFilter::default()
    };
    let cancel = cluster::command::CancelJobs {
        filter,
        step: None,
        signal: None,
        batch_only: false,
        full: false,
    };
    browser.server.run(Command::Cancel(Box::new(cancel))).await.expect("cancelled");
    forget_ended(&browser).await;
    let page = browser.get(&format!("{JOBS}/{job}")).await.json();
    assert_eq!(page["may_read"], false, "{page}");
    assert_eq!(browser.get(&format!("{JOBS}/{job}/script")).await.status, StatusCode::FORBIDDEN);
    config.parameters.private_data = [PrivateKind::Jobs].into_iter().collect();
    browser.server.run(Command::Configure(Box::new(config))).await.expect("private jobs");
    assert_eq!(browser.get(&format!("{JOBS}/{job}")).await.status, StatusCode::NOT_FOUND);
    assert_eq!(browser.get(&format!("{JOBS}/{job}/script")).await.status, StatusCode::NOT_FOUND);
    assert_eq!(browser.get(HISTORY).await.json()["rows"], json!([]));
}
