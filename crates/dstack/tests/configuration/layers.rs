//! What comes before and behind the file: overrides and profiles.

use dstack::configuration::Configuration;
use model::range::Range;
use std::time::Duration;

#[test]
fn profile_gives_what_the_configuration_leaves_open() {
    let profiles = b"profiles:\n- name: long\n  max_duration: 2d\n  retry: true\n- name: usual\n  default: true\n";
    let profiles = dstack::configuration::parse_profiles("profiles.yml", profiles).unwrap();
    let long = dstack::configuration::load::select_profile(&profiles, Some("long")).unwrap();
    let text = b"type: task\ncommands: [x]\nmax_duration: 1h\n";
    let loaded =
        dstack::configuration::load::parse_with("t.dstack.yml", text, Some(long), &[]).unwrap();
    let Configuration::Task(task) = loaded.configuration else { panic!() };
    assert_eq!(task.max_duration, Some(Duration::from_secs(3_600)));
    assert!(task.retry.is_some());
    // What a profile says of machines is the run's.
    let cloud =
        dstack::configuration::parse_profiles("p.yml", b"profiles: [{name: c, backends: [aws]}]");
    let loaded =
        dstack::configuration::load::parse_with("t.yml", text, Some(&cloud.unwrap()[0]), &[])
            .unwrap();
    let Configuration::Task(task) = loaded.configuration else { panic!() };
    let choice = task.profile.machine_choice().expect("it says a backend");
    assert_eq!(choice.backends, ["aws"]);
    assert!(!choice.allows_own());
    let usual = dstack::configuration::load::select_profile(&profiles, None).unwrap();
    assert_eq!(usual.get("name").as_text(), Some("usual"));
    let error =
        dstack::configuration::parse_profiles("p.yml", b"profiles: [{max: 1}]").unwrap_err();
    assert_eq!(error.to_string(), "p.yml:1:13: unknown property `profiles[0].max`");
}

#[test]
fn overrides_stand_in_place_of_what_the_file_says() {
    use dstack::configuration::load::{Override, parse_with};
    let set = |path, value| Override { path, value };
    let overrides = [
        set(&["name"], serde_json::json!("other")),
        set(&["resources", "cpu"], serde_json::json!(4)),
        set(&["max_duration"], serde_json::json!("90m")),
    ];
    for text in [
        "type: task\nname: it\ncommands: [a]\nresources: {cpu: 2, memory: 1GB}\n",
        "type: task\ncommands: [a]\n",
        "type: task\ncommands: [a]\nresources:\n",
    ] {
        let loaded = parse_with("t.yml", text.as_bytes(), None, &overrides).expect(text);
        let Configuration::Task(task) = loaded.configuration else { panic!("no task") };
        assert_eq!(task.name.as_deref(), Some("other"));
        assert_eq!(task.resources.cpu.count, Range::exactly(4));
        assert_eq!(task.max_duration, Some(Duration::from_secs(5400)));
    }
    let wrong = [set(&["name"], serde_json::json!("Bad_Name"))];
    let error =
        parse_with("t.yml", b"type: task\ncommands: [a]\n", None, &wrong).expect_err("a name");
    assert!(error.to_string().starts_with("t.yml: `name`: invalid \"Bad_Name\""), "{error}");
}
