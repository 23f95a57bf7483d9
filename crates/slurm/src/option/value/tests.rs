//! Values that are accepted, and what they come to. Refusals are tested with the whole command line.

use super::*;

#[test]
fn node_counts_are_ranges_or_lists() {
    let listed = |text| {
        let counts = super::node_count::node_counts(text);
        counts.map(|(range, list)| (range.min, range.max, list))
    };
    let cases = [
        ("4", 4, 4),
        ("2-4", 2, 4),
        ("4-4", 4, 4),
        ("-4", 1, 4),
        ("1k", 1024, 1024),
        ("2k-4K", 2048, 4096),
        ("1-2m", 1, 2 << 20),
        ("+4", 4, 4),
        ("4 ", 4, 4),
    ];
    for (text, min, max) in cases {
        assert_eq!(listed(text), Ok((min, Some(max), vec![])), "{text}");
    }
    for text in ["", "x", "4.", "3-", "4-2", "0", "2--3", "99999999999", "é"] {
        assert!(listed(text).is_err(), "{text}");
    }
    assert_eq!(listed("1,2,4"), Ok((1, Some(4), vec![1, 2, 4])));
    assert_eq!(listed("2-8:2"), Ok((2, Some(8), vec![2, 4, 6, 8])));
    assert_eq!(listed("8,1-3"), Ok((1, Some(8), vec![1, 2, 3, 8])));
    for text in ["1,", "1-4:0", "1,x", "0,1", "1-4:2:1", ",", "1-100000:1"] {
        assert!(listed(text).is_err(), "{text}");
    }
}

#[test]
fn signal_options_have_flags_a_signal_and_a_time() {
    let option = |signal, before_secs, batch_only, for_reservation| {
        Ok(SignalOption { signal, before_secs, batch_only, for_reservation })
    };
    let cases = [
        ("USR1", option(10, 60, false, false)),
        ("USR1@70", option(10, 70, false, false)),
        ("B:SIGTERM", option(15, 60, true, false)),
        ("RB:10@5", option(10, 5, true, true)),
        ("br:10", option(10, 60, true, true)),
        ("R:INT@0", option(2, 0, false, true)),
    ];
    for (text, expected) in cases {
        assert_eq!(signal_option(text, true), expected, "{text}");
    }
    for text in ["FOO@10", "10@x", "B", "B:", "X:USR1", "R:B:1", "1@65536", "@5", ""] {
        assert_eq!(signal_option(text, true), Err(OptionError::Specification("signal")), "{text}");
    }
    assert!(signal_option("B:USR1", false).is_err(), "only a batch job has a batch script");
}

#[test]
fn gres_flags_are_a_list_of_which_one_says_the_binding() {
    let cases = [
        ("enforce-binding", Some(GresFlag::EnforceBinding)),
        ("Disable-Binding", Some(GresFlag::DisableBinding)),
        ("multiple-tasks-per-sharing", None),
        ("multiple-tasks-per-sharing,enforce-binding", Some(GresFlag::EnforceBinding)),
    ];
    for (text, binding) in cases {
        assert_eq!(gres_flags(text), Ok(binding), "{text}");
    }
}

#[test]
fn login_environment_has_seconds_and_a_mode() {
    let cases =
        [("", 8, true), ("10", 10, true), ("10L", 10, true), ("S", 8, false), ("l", 8, true)];
    for (text, timeout_s, login) in cases {
        assert_eq!(get_user_env(text), Ok(LoginEnvironment { timeout_s, login }), "{text}");
    }
    for text in ["x", "10x", "SL", "L10", "-1", "3601", "1 L", "é"] {
        assert!(get_user_env(text).is_err(), "{text}");
    }
}

#[test]
fn export_is_all_none_nil_or_a_list() {
    let variable = |name: &str, value: Option<&str>| ExportVariable {
        name: name.to_owned(),
        value: value.map(str::to_owned),
    };
    let cases = [
        ("ALL", Export::All(vec![])),
        ("all", Export::All(vec![])),
        ("NONE", Export::None),
        ("NIL", Export::Nil),
        ("ALL,A=b", Export::All(vec![variable("A", Some("b"))])),
        ("A=b,ALL", Export::All(vec![variable("A", Some("b"))])),
        ("HOME,X=", Export::Only(vec![variable("HOME", None), variable("X", Some(""))])),
        (
            "X='a,b',Y=1=2",
            Export::Only(vec![variable("X", Some("a,b")), variable("Y", Some("1=2"))]),
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(export(text), Ok(expected), "{text}");
    }
    assert!(export("=x").is_err());
}

#[test]
fn mail_types_are_sorted_events() {
    use MailType::*;
    let cases: &[(&str, &[MailType])] = &[
        ("ALL", &[InvalidDepend, Begin, End, Fail, Requeue, StageOut]),
        ("end,begin", &[Begin, End]),
        ("BEGIN,", &[Begin]),
        ("time_limit_50,array_tasks", &[TimeLimit50, ArrayTasks]),
        ("ALL,NONE", &[]),
    ];
    for (text, expected) in cases {
        assert_eq!(mail_types(text).as_deref(), Ok(*expected), "{text}");
    }
}

#[test]
fn distributions_have_three_levels() {
    use NodeDistribution::{Block, Cyclic, Plane};
    let cases = [
        ("block", Distribution { nodes: Some(Block), ..Default::default() }),
        (
            "cyclic:fcyclic",
            Distribution {
                nodes: Some(Cyclic),
                sockets: Some(LocalDistribution::Fcyclic),
                ..Default::default()
            },
        ),
        (
            "*:*:cyclic,NoPack",
            Distribution {
                cores: Some(LocalDistribution::Cyclic),
                pack: Some(false),
                ..Default::default()
            },
        ),
        ("plane=4", Distribution { nodes: Some(Plane(4)), ..Default::default() }),
    ];
    for (text, expected) in cases {
        assert_eq!(distribution(text), Ok(expected), "{text}");
    }
    for text in ["foo", "plane=0", "plane=", "block:foo", "block:block:block:block", ""] {
        assert!(distribution(text).is_err(), "{text}");
    }
}

#[test]
fn numbers_names_and_words_are_checked() {
    assert_eq!(number_from(1, "+4", "--ntasks"), Ok(4));
    assert_eq!(number_from(1, " 4", "--ntasks"), Ok(4));
    assert_eq!(nice(None), Ok(100));
    assert_eq!(nice(Some("-5")), Ok(-5));
    assert_eq!(priority("TOP"), Ok(PriorityOption::Top));
    assert_eq!(priority("12"), Ok(PriorityOption::Value(12)));
    assert_eq!(open_mode("apple"), Ok(OpenMode::Append));
    assert_eq!(open_mode("truncate"), Ok(OpenMode::Truncate));
    assert_eq!(exclusive(Some("User")), Ok(Exclusive::OtherUsers));
    assert_eq!(exclusive(None), Ok(Exclusive::AnyJob));
    assert_eq!(limit("0", "time"), Ok(TimeLimit::Unlimited));
    assert_eq!(limit("1:30", "time"), Ok(TimeLimit::Minutes(2)));
    let two = SwitchesOption { count: 2, wait: Some(TimeLimit::Minutes(10)) };
    assert_eq!(switches("2@10"), Ok(two));
    let license = |name: &str, count| LicenseCount { name: name.to_owned(), count };
    assert_eq!(licenses("a:2,b"), Ok(vec![license("a", 2), license("b", 1)]));
    assert_eq!(licenses("a:0;b:2"), Ok(vec![license("a", 0), license("b", 2)]));
    for wrong in ["a:b", "a:", ":2"] {
        assert!(licenses(wrong).is_err(), "{wrong}");
    }
}
