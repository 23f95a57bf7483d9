//! Variables: of the file, of the client and of the command line, and references to secrets.

use crate::task_with;
use dstack::configuration::Configuration;

#[test]
fn env_may_be_a_mapping_and_keeps_the_text_as_written() {
    let task = task_with("env: {A: '1', B: 2, C: 1.50, D: \"yes\", E: \"\"}");
    let env = task.env.resolve(|_| None).unwrap();
    let values: Vec<&str> = env.iter().map(|variable| variable.value.as_str()).collect();
    assert_eq!(values, ["1", "2", "1.50", "yes", ""]);
}

#[test]
fn reference_to_a_secret_stays_until_launch_and_other_texts_are_as_the_run_gets_them() {
    let task = task_with("env: ['A=x-${{ secrets.tok }}-$$', 'B=$$5', 'C=$${{ secrets.x }}', D]");
    let env = task.env.resolve(|_| Some("$$ ${{ secrets.tok }}".into())).unwrap();
    let shown = env.iter().map(|v| (v.name.as_str(), v.value.as_str(), v.has_secrets));
    let expected = [
        ("A", "x-${{ secrets.tok }}-$$", true),
        ("B", "$5", false),
        ("C", "${{ secrets.x }}", false),
        // The client's own value is taken as it is.
        ("D", "$$ ${{ secrets.tok }}", false),
    ];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
}

#[test]
fn variable_missing_at_the_client_is_named_with_its_position() {
    let fault = task_with("env: [A, B]").env.resolve(|_| None).unwrap_err();
    assert_eq!(
        fault.to_string(),
        "3:7: `A` is to be taken from the environment, where it is not set: set it, or write `A=VALUE`"
    );
}

#[test]
fn variables_of_the_command_line_come_before_those_of_the_file() {
    use dstack::configuration::load::parse_with_env;
    let words = ["A=new".to_owned(), "B=x=y".to_owned(), "C".to_owned()];
    for env in ["env: {A: old, D: kept}\n", "env: [A=old, D=kept]\n", "env: [C=old]\n", ""] {
        let text = format!("type: task\ncommands: [a]\n{env}");
        let loaded = parse_with_env("t.yml", text.as_bytes(), None, &[], &words).expect(env);
        let Configuration::Task(task) = loaded.configuration else { panic!("no task") };
        let client = |name: &str| (name == "C").then(|| "of the client".to_owned());
        let set = task.env.resolve(client).expect("all are known");
        let value = |name: &str| {
            let found = set.iter().find(|variable| variable.name == name);
            found.map(|variable| variable.value.clone())
        };
        assert_eq!(value("A").as_deref(), Some("new"), "{env}");
        assert_eq!(value("B").as_deref(), Some("x=y"), "{env}");
        assert_eq!(value("C").as_deref(), Some("of the client"), "{env}");
        assert_eq!(value("D").is_some(), env.contains("kept"), "{env}");
        // dstack's own form has them too.
        assert_eq!(loaded.value.get("env").get("A").as_text(), Some("new"), "{env}");
    }
    let wrong = ["1A=b".to_owned()];
    let error = parse_with_env("t.yml", b"type: task\ncommands: [a]\n", None, &[], &wrong);
    let error = error.expect_err("a name").to_string();
    assert!(error.starts_with("t.yml: `env`: invalid \"1A\""), "{error}");
}
