//! Scripts as people write them, and what is wrong with some.

use super::*;
use crate::option::command::Command;
use crate::option::key::OptionKey as K;

fn settings(text: &str) -> Vec<(K, Option<String>, u32)> {
    let script = read("job.sh", text.as_bytes().to_vec())
        .unwrap_or_else(|error| panic!("{text:?}: {error}"));
    assert_eq!(script.components.len(), 1);
    let line = |source| match source {
        Source::Script { line } => line,
        other => panic!("{other:?} is no script"),
    };
    script.components[0].iter().map(|s| (s.key, s.value.clone(), line(s.source))).collect()
}

fn value(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn refusal(bytes: &[u8]) -> (String, i32) {
    let error = read("bad.sh", bytes.to_vec()).expect_err("a bad script");
    (error.render(Command::Sbatch), error.exit_code(Command::Sbatch))
}

#[test]
fn directives_are_read_up_to_the_first_command() {
    let text = "#!/bin/sh\n\n# a comment\n#SBATCH -n2 -c3\n##SBATCH -n 8\n  #SBATCH -n 7\n\
                #SBATCH\t--mem=1G\ntrue\n#SBATCH -n 9\n";
    assert_eq!(
        settings(text),
        [(K::Ntasks, value("2"), 4), (K::CpusPerTask, value("3"), 4), (K::Mem, value("1G"), 7),]
    );
}

#[test]
fn backslash_at_the_end_of_a_directive_is_left_out() {
    let text = "#!/bin/sh\n#SBATCH --mem=1G \\\n#SBATCH \\\n#SBATCH -n 2\\\ntrue\n";
    assert_eq!(settings(text), [(K::Mem, value("1G"), 2), (K::Ntasks, value("2"), 4)]);
}

#[test]
fn an_argument_may_be_on_the_next_directive() {
    assert_eq!(settings("#!/bin/sh\n#SBATCH -n\n#SBATCH 4\n"), [(K::Ntasks, value("4"), 2)]);
}

#[test]
fn quotes_keep_blanks_and_a_hash_begins_a_comment() {
    let cases = [
        (r#"-J "a b""#, "a b"),
        (r"-J 'x # y'", "x # y"),
        (r#"-J pre"mid dle"post"#, "premid dlepost"),
        (r"-J a#b", "a#b"),
        (r"-J abc # -n 9", "abc"),
        (r"-J abc #-n9", "abc"),
        (r#"-J "it's\"q""#, "it's\"q"),
        (r"-J 'it\'s'", "it's"),
        (r"-J abc\", "abc"),
        (r#"-J """#, ""),
    ];
    for (directive, name) in cases {
        let found = settings(&format!("#!/bin/sh\n#SBATCH {directive}\ntrue\n"));
        assert_eq!(found, [(K::JobName, value(name), 2)], "{directive}");
    }
}

#[test]
fn options_without_effect_in_a_script_are_dropped() {
    let text = "#!/bin/sh\n#SBATCH --help\n#SBATCH -V\n#SBATCH --wrap=ls\n#SBATCH --parsable\n";
    assert_eq!(settings(text), [(K::Parsable, None, 5)]);
}

#[test]
fn components_of_a_heterogeneous_job_are_kept_apart() {
    let text = "#!/bin/sh\n#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n2\n";
    let script = read("job.sh", text.as_bytes().to_vec()).expect("a right script");
    let counts: Vec<_> = script.components.iter().map(|c| c[0].text().to_owned()).collect();
    assert_eq!(counts, ["1", "2"]);
}

#[test]
fn directives_of_other_systems_are_noted_and_not_read() {
    let text = "#!/bin/sh\n#PBS -N x\n#BSUB -J y\n#SBATCH -J z\n";
    let script = read("job.sh", text.as_bytes().to_vec()).expect("a right script");
    assert_eq!(script.notes.len(), 2);
    assert!(script.notes[0].starts_with("job.sh: line 2: #PBS "), "{}", script.notes[0]);
    assert_eq!(settings(text), [(K::JobName, value("z"), 4)]);
}

#[test]
fn bad_scripts_are_refused_in_slurms_words() {
    const NO_SHEBANG: &str = "sbatch: error: This does not look like a batch script.  The first\n\
        sbatch: error: line must start with #! followed by the path to an interpreter.\n\
        sbatch: error: For instance: #!/bin/sh\n";
    const NUL: &str = "sbatch: error: The Slurm controller does not allow scripts that\n\
        sbatch: error: contain a NULL character '\\0'.\n";
    const CRLF: &str = "sbatch: error: Batch script contains DOS line breaks (\\r\\n)\n\
        sbatch: error: instead of expected UNIX line breaks (\\n).\n";
    const HELP: &str = "Try \"sbatch --help\" for more information\n";
    let cases: &[(&[u8], &str, i32)] = &[
        (b"", "sbatch: error: Batch script is empty!\n", 1),
        (b"  \n\n", "sbatch: error: Batch script contains only whitespace!\n", 1),
        (b"echo hi\n", NO_SHEBANG, 1),
        (b"\n#!/bin/sh\n", NO_SHEBANG, 1),
        (b"\x7fELF\0\0", NO_SHEBANG, 1),
        (b"#!/bin/sh\necho \0\n", NUL, 1),
        (b"#!/bin/sh\r\n#SBATCH -n 2\r\n", CRLF, 1),
        (
            b"#!/bin/sh\n#SBATCH -t 5 job.sh\n",
            "sbatch: error: Invalid directive found in batch script: job.sh\n",
            255,
        ),
        (
            b"#!/bin/sh\n#SBATCH -- -n4\n",
            "sbatch: error: Invalid directive found in batch script: -n4\n",
            255,
        ),
        (
            b"#!/bin/sh\n#SBATCH=x\n",
            "sbatch: error: Invalid directive found in batch script: =x\n",
            255,
        ),
        (
            b"#!/bin/sh\n#SBATCH -J \"a b\n",
            "sbatch: fatal: bad.sh: line 2: Unmatched `\"` in [\"a b]\n",
            1,
        ),
        (
            b"#!/bin/sh\n#SBATCH --job-name=\"a b\n",
            "sbatch: fatal: bad.sh: line 2: Unmatched `\"` in [--job-name=\"a b]\n",
            1,
        ),
        (
            b"#!/bin/sh\n\n#SBATCH : \n",
            "sbatch: fatal: bad.sh: line 3: Unexpected `:` in [: ]\n",
            1,
        ),
        (b"#!/bin/sh\n#SBATCH --bogus=1\n", "sbatch: unrecognized option '--bogus=1'\n", 255),
        (b"#!/bin/sh\n#SBATCH --time\n", "sbatch: option '--time' requires an argument\n", 255),
    ];
    for (bytes, words, code) in cases {
        let (text, exit) = refusal(bytes);
        let expected = if words.contains(": error") || words.contains(": fatal") {
            (*words).to_owned()
        } else {
            format!("{words}{HELP}")
        };
        assert_eq!((text, exit), (expected, *code), "{:?}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn a_script_is_bytes() {
    let bytes = b"#!/bin/sh\n# gr\xfcn\n#SBATCH -J gr\xfcn # gr\xfcn\necho gr\xfcn\n".to_vec();
    let script = read("job.sh", bytes.clone()).expect("a right script");
    assert_eq!(script.bytes, bytes);
    let [name] = &script.components[0][..] else { panic!("{:?}", script.components) };
    assert_eq!(&*os_text::to_bytes(name.text()), b"gr\xfcn");
}

#[test]
fn a_script_may_be_as_large_as_the_limit_and_no_larger() {
    let mut bytes = b"#!/bin/sh\n".to_vec();
    bytes.resize(SCRIPT_BYTES_MAX, b'#');
    assert_eq!(check(&bytes), Ok(()));
    bytes.push(b'#');
    let (text, code) = refusal(&bytes);
    assert_eq!(
        (text.as_str(), code),
        ("sbatch: error: Batch script is larger than 4194304 bytes\n", 1)
    );
    bytes.resize(SCRIPT_BYTES_MAX * 2, b'#');
    let loaded = load_from(bytes.as_slice()).expect("memory can be read");
    assert_eq!(loaded.len(), SCRIPT_BYTES_MAX + 1);
}

#[test]
fn files_are_loaded_and_missing_ones_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("job.sh");
    std::fs::write(&path, "#!/bin/sh\n").expect("a file");
    let name = |path: &std::path::Path| path.to_str().expect("a plain path").to_owned();
    assert_eq!(load(&name(&path)).expect("it is there"), b"#!/bin/sh\n");
    assert_eq!(load(&name(folder.path())).expect("a directory reads as empty"), b"");
    let missing = load("nosuch.sh").expect_err("it is not there");
    assert_eq!(missing.render(Command::Sbatch), "sbatch: error: Unable to open file nosuch.sh\n");
    assert_eq!(missing.exit_code(Command::Sbatch), 1);
}

#[test]
fn wrap_gives_a_script_with_the_command() {
    let script = wrap("echo hi");
    assert_eq!(script, b"#!/bin/sh\n# This script was created by sbatch --wrap.\n\necho hi\n");
    assert_eq!(check(&script), Ok(()));
}

/// A file that counts how often it is read.
struct CountedReads<'a> {
    text: &'a [u8],
    reads: usize,
}

impl Read for CountedReads<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reads += 1;
        self.text.read(buffer)
    }
}

#[test]
fn usual_script_is_read_in_one_piece() {
    let text = format!("#!/bin/sh\n{}", "#SBATCH --comment=x\n".repeat(100));
    let mut file = CountedReads { text: text.as_bytes(), reads: 0 };
    assert_eq!(load_from(&mut file).expect("memory can be read"), text.as_bytes());
    assert_eq!(file.reads, 2, "the whole of it, and its end");
}

#[test]
fn components_and_words_of_directives_are_bounded() {
    let script = |lines: String| format!("#!/bin/sh\n{lines}#SBATCH -n1\ntrue\n").into_bytes();
    let components = |count: usize| script("#SBATCH hetjob\n".repeat(count - 1));
    let read_all = read("job.sh", components(128)).expect("as many as there may be");
    assert_eq!(read_all.components.len(), 128);
    assert!(read("job.sh", script("#SBATCH -w n[1-9]\n".repeat(2000))).is_ok());
    for long in [components(129), script("#SBATCH -w n[1-9]\n".repeat(2100))] {
        let (said, code) = refusal(&long);
        assert!(said.contains("expected at most 128 components and 4096 words"), "{said}");
        assert_ne!(code, 0);
    }
}
