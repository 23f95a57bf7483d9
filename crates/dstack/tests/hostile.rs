//! Files that nobody would write: whatever comes in, a task or one line comes out.

use dstack::configuration::parse;
use proptest::prelude::*;

const SEED: &str = r#"type: task
name: train
commands: [echo a, &c "b", *c]
env: {A: 1, <<: {B: 2}}
resources: {cpu: x86:4.., memory: 16GB.., gpu: {name: H100, count: 1..2}}
retry: {on_events: [error], duration: 1h}
max_duration: 2h
ports:
  - 80:8080
"#;

fn check(bytes: &[u8]) {
    if let Err(error) = parse("f", bytes) {
        let line = error.to_string();
        assert!(!line.chars().any(char::is_control), "{line:?}");
        assert!(line.chars().count() < 500, "{line}");
    }
}

#[test]
fn names_from_the_file_cannot_break_the_line() {
    check(b"type: task\n\"a\\nb\\e[2J\": 1\n");
    check(format!("type: task\n{}: 1\n", "x".repeat(1000)).as_bytes());
    check(b"\"\\0\": 1\n\"\\0\": 2\n");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        check(&bytes);
    }

    #[test]
    fn any_marks(text in "[-:{}\\[\\]&*!|>'\"%@#?,~ \n\t a-c0-9.]{0,80}") {
        check(text.as_bytes());
        check(format!("type: task\ncommands: [x]\n{text}").as_bytes());
    }

    #[test]
    fn a_good_file_with_a_piece_replaced(
        start in 0..SEED.len(),
        length in 0usize..20,
        piece in "[-:{}\\[\\]&*!|>'\"\n .a-z0-9]{0,12}",
    ) {
        let end = (start + length).min(SEED.len());
        check(format!("{}{piece}{}", &SEED[..start], &SEED[end..]).as_bytes());
    }

    #[test]
    fn any_resources(text in "[0-9a-zA-Z:.,\\- ]{0,16}") {
        for property in ["cpu", "memory", "gpu", "disk", "shm_size"] {
            check(format!("type: task\ncommands: [x]\nresources: {{{property}: '{text}'}}\n").as_bytes());
        }
    }
}
