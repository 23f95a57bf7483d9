use super::*;

fn names(dir: &std::path::Path) -> FilenameFields {
    FilenameFields {
        job_id: 7,
        array: None,
        step: "0".into(),
        user: "alice".into(),
        job_name: "hi".into(),
        work_dir: dir.to_string_lossy().into_owned(),
    }
}

fn peer() -> Peer {
    Peer { node: "n1".into(), node_index: 0 }
}

#[test]
fn output_targets_are_parsed() {
    let table = [
        (None, Target::Own),
        (Some("all"), Target::Own),
        (Some("none"), Target::Nowhere),
        (Some("2"), Target::OnlyTask(2)),
        (Some("4"), Target::File("4".into())),
        (Some("x-%t"), Target::File("x-%t".into())),
    ];
    for (text, target) in table {
        assert_eq!(Target::parse(text, Some(4)), target, "{text:?}");
    }
}

#[test]
fn files_are_named_by_task_and_error_follows_output() {
    let dir = tempfile::tempdir().expect("a folder");
    let target = Target::File("out-%j.%s-%t".into());
    let mut outputs = Outputs::new(target, None, false, names(dir.path())).expect("made");
    outputs.write(OutputStream::Stdout, &peer(), 0, b"one\n").expect("written");
    outputs.write(OutputStream::Stderr, &peer(), 0, b"two\n").expect("written");
    outputs.write(OutputStream::Stdout, &peer(), 1, b"three").expect("written");
    assert_eq!(std::fs::read_to_string(dir.path().join("out-7.0-1")).ok(), None, "no line yet");
    outputs.end(&peer(), 1).expect("written");
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect("there");
    assert_eq!(read("out-7.0-0"), "one\ntwo\n");
    assert_eq!(read("out-7.0-1"), "three");
}

#[test]
fn whole_lines_are_labelled() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut outputs =
        Outputs::new(Target::File("out".into()), None, false, names(dir.path())).expect("made");
    outputs.label(12).expect("nothing is held");
    outputs.write(OutputStream::Stdout, &peer(), 3, b"a\nb").expect("written");
    outputs.write(OutputStream::Stdout, &peer(), 11, b"x\n").expect("written");
    outputs.write(OutputStream::Stdout, &peer(), 3, b"c\nlast").expect("written");
    outputs.end(&peer(), 3).expect("written");
    let text = std::fs::read_to_string(dir.path().join("out")).expect("there");
    assert_eq!(text, " 3: a\n11: x\n 3: bc\n 3: last\n");
}

#[test]
fn unbuffered_pieces_are_labelled_one_by_one() {
    let dir = tempfile::tempdir().expect("a folder");
    let target = Target::File("out".into());
    let outputs = Outputs::new(target, None, false, names(dir.path())).expect("made");
    let mut outputs = outputs.unbuffered();
    outputs.label(2).expect("nothing is held");
    for piece in ["a", "b\nc"] {
        outputs.write(OutputStream::Stdout, &peer(), 0, piece.as_bytes()).expect("written");
    }
    let text = std::fs::read_to_string(dir.path().join("out")).expect("there");
    assert_eq!(text, "0: a\n0: b\n0: c\n");
}

#[test]
fn a_shared_output_file_is_opened_before_anything_runs() {
    let dir = tempfile::tempdir().expect("a folder");
    for (pattern, fails) in [("no/such", true), ("no/%t", false), ("no/%2t", false)] {
        let target = Target::File(pattern.into());
        let mut outputs = Outputs::new(target, None, false, names(dir.path())).expect("made");
        let opened = outputs.open_common();
        assert_eq!(opened.is_err(), fails, "{pattern}");
        if let Err(error) = opened {
            let text = error.to_string();
            let words = "Could not open stdout file: No such file or directory: ";
            assert!(text.starts_with(words) && text.ends_with("no/such"), "{text}");
        }
    }
}

#[test]
fn an_error_names_the_output_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let target = Target::File("no/such/dir".into());
    let mut outputs = Outputs::new(target, None, false, names(dir.path())).expect("made");
    let error = outputs.write(OutputStream::Stdout, &peer(), 0, b"x\n").expect_err("no folder");
    assert!(error.to_string().contains("no/such/dir"), "{error}");
}

#[test]
fn lines_are_held_back_until_the_label_width_is_known() {
    let dir = tempfile::tempdir().expect("a folder");
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect("there");
    let outputs = |name: &str| {
        let target = Target::File(name.into());
        let mut outputs = Outputs::new(target, None, false, names(dir.path())).expect("made");
        outputs.open_common().expect("opened");
        outputs.label_later();
        outputs.write(OutputStream::Stdout, &peer(), 3, b"early\n").expect("taken");
        outputs
    };
    let mut told = outputs("told");
    assert_eq!(read("told"), "");
    told.label(12).expect("written");
    told.write(OutputStream::Stdout, &peer(), 11, b"late\n").expect("written");
    assert_eq!(read("told"), " 3: early\n11: late\n");

    let mut untold = outputs("untold");
    untold.settle().expect("written");
    assert_eq!(read("untold"), "3: early\n");

    // The output that is held back is bounded. Beyond the bound the width is guessed.
    let mut much = outputs("much");
    for _ in 0..=HELD_MAX {
        much.write(OutputStream::Stdout, &peer(), 0, b"x\n").expect("written");
    }
    assert!(read("much").starts_with("3: early\n0: x\n"));
}
