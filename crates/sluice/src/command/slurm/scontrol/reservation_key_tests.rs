use super::*;
use jiff::tz::TimeZone;
use std::collections::BTreeSet;

const NOW: Timestamp = Timestamp(1_000_000_000);

fn ask(words: &[&str]) -> Result<ReservationRequest, KeyError> {
    let mut ask = ReservationRequest::default();
    let context = TimeContext { now: NOW, tz: &TimeZone::UTC };
    words.iter().try_for_each(|word| read(&mut ask, word, context))?;
    Ok(ask)
}

fn names(edit: EditMode, names: &[&str]) -> Option<NamesEdit> {
    Some(NamesEdit { edit, names: names.iter().map(|name| name.to_string()).collect() })
}

#[test]
fn reservation_keys_are_parsed() {
    let all = ask(&[
        "ReservationName=maint",
        "starttime=now+1hour",
        "Dur=2-0",
        "nodes=n[1-2]",
        "NodeC=1k",
        "CoreCnt=2,3",
        "PartitionName=gpu",
        "user=alice,,-bob",
        "Accounts+=physics",
        "groups-=staff",
        "licenses=matlab:2,ansys",
        "features=a&b",
        "flags+=MAINT,purge_comp=10",
        "MaxStartDelay=5",
        "skip",
    ]);
    let expected = ReservationRequest {
        name: Some("maint".into()),
        start: Some(Timestamp(NOW.0 + 3_600_000)),
        end: None,
        duration: Some(DurationEdit::Set(TimeLimit::Minutes(2 * 24 * 60))),
        nodes: Some(NodesChoice::Named(vec!["n1".into(), "n2".into()])),
        node_count: Some(1_024),
        cores: Some(vec![2, 3]),
        gres: None,
        partition: Some("gpu".into()),
        users: names(EditMode::Set, &["alice", "-bob"]),
        groups: names(EditMode::Remove, &["staff"]),
        group_ids: Vec::new(),
        accounts: names(EditMode::Add, &["physics"]),
        licenses: Some(vec![("matlab".into(), 2), ("ansys".into(), 1)]),
        features: Some("a&b".into()),
        flags: Some(FlagsEdit {
            edit: EditMode::Add,
            flags: BTreeSet::from([ReservationFlag::Maint, ReservationFlag::PurgeComp]),
        }),
        purge_after_s: Some(600),
        max_start_delay_s: Some(300),
        skip: true,
    };
    assert_eq!(all, Ok(expected));
    assert_eq!(ask(&["nodes=all"]).map(|a| a.nodes), Ok(Some(NodesChoice::All)));
    let more = ask(&["duration+=30"]).map(|a| a.duration);
    assert_eq!(more, Ok(Some(DurationEdit::AddMin(30))));
}

#[test]
fn tres_sets_cores_nodes_and_licenses() {
    let asked = ask(&["tres=cpu=2,3,license/matlab=1,node=2,gres/gpu=4"]).expect("right");
    assert_eq!(asked.gres, Some(vec![("gpu".into(), 4)]));
    assert_eq!((asked.cores, asked.node_count), (Some(vec![2, 3]), Some(2)));
    assert_eq!(asked.licenses, Some(vec![("matlab".into(), 1)]));
}

#[test]
fn bad_reservation_keys_are_refused_in_slurms_words() {
    let sentence = |text: &str| KeyError::Sentence(text.to_owned());
    let whole = |text: &str| KeyError::Whole(text.to_owned());
    let after = |line: &str, text: &str| KeyError::After(line.to_owned(), text.to_owned());
    let no_time = "Invalid time specification (pos=0): bogus";
    let table = [
        ("bogus=1", sentence("Unknown parameter bogus=1")),
        ("node=node1", sentence("Unknown parameter node=node1")),
        ("nodes+=node1", sentence("Unknown parameter nodes+=node1")),
        ("u1", sentence("Misformatted parameter 'u1', most options have a parameter after '='")),
        ("flags=bogus", sentence("Error parsing flags bogus")),
        ("flags+=bogus", sentence("Error parsing flags +bogus")),
        ("flags=daily=3", sentence("Error parsing flags daily=3")),
        ("starttime=bogus", after(no_time, "Invalid start time starttime=bogus")),
        ("endtime=bogus", after(no_time, "Invalid end time endtime=bogus")),
        ("duration=bogus", sentence("Invalid duration duration=bogus")),
        ("maxstartdelay=bogus", sentence("Invalid duration maxstartdelay=bogus")),
        ("nodecnt=bogus", whole("Invalid node count bogus")),
        ("corecnt=bogus", whole("Invalid core count bogus")),
        ("tres=bogus=1", whole("couldn't identify configured TRES 'bogus'")),
        ("tres=mem=2", whole("TRES type 'mem' not supported with reservations")),
        ("tres=cpu=x", whole("invalid TRES cpu value 'x'")),
    ];
    for (word, wrong) in table {
        assert_eq!(ask(&[word]), Err(wrong), "{word}");
    }
}

#[test]
fn a_reservation_key_may_be_abbreviated_to_three_letters() {
    for word in ["reservation", "res", "Res=x", "ReservationName=x", "reservation=x"] {
        assert!(names_one(word), "{word}");
    }
    for word in ["r=x", "bogus", "nodename=x", "partitionname=x", "skip"] {
        assert!(!names_one(word), "{word}");
    }
}
