//! The text of a configuration file, and of the files it includes, as lines of `Key=Value` pairs.
//!
//! A `#` begins a comment that goes to the end of its line, also within quotes; `\#` is the character.
//! A `\` at the end of a line joins the next one to it. Blanks separate pairs, and may stand around a `=`; a value with
//! blanks is in double quotes.

use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::Files;
use crate::conf::error::{ConfError, ConfLocation, Findings, NoticeKind};

/// The greatest depth of included files.
const INCLUDE_DEPTH_MAX: usize = 10;

/// The most lines of a file with all files that it includes.
const LINES_MAX: usize = 200_000;

/// How much of a line an error quotes.
const EXCERPT_CHARS_MAX: usize = 60;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// As written. Keys are looked up without regard to case.
    pub key: String,
    pub value: String,
    pub place: ConfLocation,
}

/// The pairs of one line, with continuation lines joined. Never empty.
pub type ConfLine = Vec<Pair>;

/// Reads the text of `path`, with included files in the place of their `Include`.
pub fn read_lines(
    files: &dyn Files,
    path: &Path,
    text: &str,
    findings: &mut Findings,
) -> Vec<ConfLine> {
    let mut reader = IncludeReader {
        files,
        folder: path.parent().unwrap_or(Path::new("")),
        open: Vec::new(),
        lines_read: 0,
        cluster_name: None,
        lines: Vec::new(),
        findings,
    };
    reader.read_file(path, text);
    reader.lines
}

struct IncludeReader<'a> {
    files: &'a dyn Files,
    /// The folder of included files without an absolute path, whichever file includes them.
    folder: &'a Path,
    /// The file being read, after the files that include it.
    open: Vec<PathBuf>,
    lines_read: usize,
    /// The value of `%c`.
    cluster_name: Option<String>,
    lines: Vec<ConfLine>,
    findings: &'a mut Findings,
}

impl IncludeReader<'_> {
    /// Returns `false` if there were too many lines: nothing more is read then.
    fn read_file(&mut self, path: &Path, text: &str) -> bool {
        let file: Arc<str> = path.to_string_lossy().into();
        self.open.push(path.to_owned());
        let mut logical = LogicalLine::new(file.clone());
        let mut within_bound = true;
        for (number, physical) in (1u32..).zip(text.lines()) {
            self.lines_read += 1;
            if self.lines_read > LINES_MAX {
                let file = file.to_string();
                self.findings.errors.push(ConfError::TooLong { file, max: LINES_MAX });
                within_bound = false;
                break;
            }
            if logical.append(physical, number) {
                continue;
            }
            let whole = mem::replace(&mut logical, LogicalLine::new(file.clone()));
            within_bound = self.take(&whole);
            if !within_bound {
                break;
            }
        }
        // A `\` on the last line continues with nothing.
        let within_bound = within_bound && self.take(&logical);
        self.open.pop();
        within_bound
    }

    fn take(&mut self, logical: &LogicalLine) -> bool {
        if let Some(name) = logical.included() {
            return self.include(name, &logical.place_at(0));
        }
        let line = logical.pairs(self.findings);
        for pair in line.iter().filter(|pair| pair.key.eq_ignore_ascii_case("ClusterName")) {
            self.cluster_name = Some(pair.value.clone());
        }
        if !line.is_empty() {
            self.lines.push(line);
        }
        true
    }

    fn include(&mut self, name: &str, place: &ConfLocation) -> bool {
        let named = match &self.cluster_name {
            Some(cluster) => name.replace("%c", cluster),
            None => name.to_owned(),
        };
        let path = self.folder.join(&named);
        let text = if name.is_empty() {
            Err("a file name expected".to_owned())
        } else if named.contains("%c") && self.cluster_name.is_none() {
            Err("%c is the cluster's name; ClusterName expected on a line before".to_owned())
        } else if self.open.contains(&path) {
            Err("this file includes itself".to_owned())
        } else if self.open.len() > INCLUDE_DEPTH_MAX {
            Err(format!("included more than {INCLUDE_DEPTH_MAX} files deep"))
        } else {
            self.files.read(&path).map_err(|e| e.to_string())
        };
        match text {
            Ok(text) => self.read_file(&path, &text),
            Err(reason) => {
                let file = if name.is_empty() { String::new() } else { path.display().to_string() };
                let place = place.clone();
                self.findings.errors.push(ConfError::Include { place, file, reason });
                true
            }
        }
    }
}

/// One line, or several joined by `\`, without comments.
struct LogicalLine {
    file: Arc<str>,
    text: String,
    /// The offset in `text` of each physical line, and its number.
    starts: Vec<(usize, u32)>,
}

impl LogicalLine {
    fn new(file: Arc<str>) -> LogicalLine {
        LogicalLine { file, text: String::new(), starts: Vec::new() }
    }

    /// Adds a physical line; `true` if the next one belongs to it too.
    fn append(&mut self, physical: &str, number: u32) -> bool {
        self.starts.push((self.text.len(), number));
        let (content, commented) = before_comment(physical);
        let joined = if commented { None } else { content.trim_end().strip_suffix('\\') };
        self.text.push_str(&joined.unwrap_or(content).replace("\\#", "#"));
        joined.is_some()
    }

    fn place_at(&self, offset: usize) -> ConfLocation {
        let after = self.starts.partition_point(|(start, _)| *start <= offset);
        let line = self.starts[..after].last().map_or(1, |(_, number)| *number);
        ConfLocation { file: self.file.clone(), line }
    }

    /// The file name, possibly empty, of a line that begins with the word `Include`.
    fn included(&self) -> Option<&str> {
        let text = self.text.trim();
        let (word, name) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        word.eq_ignore_ascii_case("Include").then_some(name.trim_start())
    }

    /// The pairs up to the first error.
    fn pairs(&self, findings: &mut Findings) -> ConfLine {
        let mut line = ConfLine::new();
        let mut rest = self.text.trim_start();
        while !rest.is_empty() {
            let place = self.place_at(self.text.len() - rest.len());
            match split_pair(rest) {
                Ok((key, value, after)) => {
                    let read = &rest[..rest.len() - after.len()];
                    if let Some(word) = pair_as_value(read) {
                        let how = format!(
                            "the word after = and a blank is its value: {word:?}; an empty value is written as \"\""
                        );
                        findings.notice(&place, key, NoticeKind::Corrected { how });
                    }
                    line.push(Pair { key: key.to_owned(), value, place });
                    rest = after.trim_start();
                }
                Err((text, expected)) => {
                    let text = text.chars().take(EXCERPT_CHARS_MAX).collect();
                    findings.errors.push(ConfError::Syntax { place, text, expected });
                    return line;
                }
            }
        }
        line
    }
}

/// The part of a line before its comment, and whether there is a comment.
fn before_comment(line: &str) -> (&str, bool) {
    let comment = line.match_indices('#').find(|(at, _)| !line[..*at].ends_with('\\'));
    comment.map_or((line, false), |(at, _)| (&line[..at], true))
}

/// Key, value and the rest of the line; or the text that is not a pair, and what is expected instead.
fn split_pair(text: &str) -> Result<(&str, String, &str), (&str, &'static str)> {
    let key_end = text.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(text.len());
    let (key, rest) = text.split_at(key_end);
    let Some(value) = rest.trim_start().strip_prefix('=').filter(|_| !key.is_empty()) else {
        return Err((&text[..word_end(text)], "Key=Value expected"));
    };
    let value = value.trim_start();
    if value.is_empty() {
        return Err((text.trim_end(), "a value expected after ="));
    }
    let (value, after) = split_value(value).map_err(|(rest, expected)| {
        let end = text.len() - rest.len() + word_end(rest);
        (text[..end].trim_end(), expected)
    })?;
    Ok((key, value, after))
}

/// The value of a pair, where it looks like a pair itself and a blank stands before it: as in `Prolog= Epilog=/e`, which Slurm
/// too reads as a prolog called `Epilog=/e`.
fn pair_as_value(pair: &str) -> Option<&str> {
    let (_, value) = pair.split_once('=')?;
    let word = value.trim_start();
    let key_length = word.find('=').filter(|_| word.len() < value.len())?;
    let is_key = key_length > 0 && word[..key_length].chars().all(char::is_alphanumeric);
    is_key.then_some(word)
}

/// A value and the text after it: a word, a text in quotes, or a list of such with commas between, as in `"a","b"`. The
/// error has the text from where it is wrong.
fn split_value(text: &str) -> Result<(String, &str), (&str, &'static str)> {
    let mut value = String::new();
    let mut rest = text;
    loop {
        let Some(quoted) = rest.strip_prefix('"') else {
            let (word, after) = rest.split_at(word_end(rest));
            value.push_str(word);
            return Ok((value, after));
        };
        let Some((inner, after)) = quoted.split_once('"') else {
            let expected = "a closing quote expected on the same line (a # in a value is \\#)";
            return Err(("", expected));
        };
        value.push_str(inner);
        if after.is_empty() || after.starts_with(char::is_whitespace) {
            return Ok((value, after));
        }
        let Some(next) = after.strip_prefix(',') else {
            return Err((after, "a blank expected after the closing quote"));
        };
        value.push(',');
        rest = next;
    }
}

/// The length of the first word.
fn word_end(text: &str) -> usize {
    text.find(char::is_whitespace).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conf::text::files::MemoryFiles;

    /// Each line as `LINE:key=value LINE:key=value`, and the errors.
    fn read(files: &MemoryFiles, text: &str) -> (Vec<String>, Vec<String>) {
        let mut findings = Findings::default();
        let lines = read_lines(files, Path::new("/c/slurm.conf"), text, &mut findings);
        let pair = |p: &Pair| format!("{}:{}={}", p.place.line, p.key, p.value);
        let joined = |line: &ConfLine| line.iter().map(pair).collect::<Vec<_>>().join(" ");
        let errors = findings.errors.iter().map(ToString::to_string).collect();
        (lines.iter().map(joined).collect(), errors)
    }

    #[test]
    fn a_line_is_read_as_pairs_with_their_places() {
        let table: [(&str, &[&str]); 17] = [
            ("A=1\r\nB=2", &["1:A=1", "2:B=2"]),
            ("\n \t\n  A=1 \t b=x=y  \n", &["3:A=1 3:b=x=y"]),
            ("A=1 # B=2\n#C=3\nD=4#E", &["1:A=1", "3:D=4"]),
            ("A=a\\#b B=\"c \\# d\" #e", &["1:A=a#b 1:B=c # d"]),
            ("A=1 \\\n  B=2\\\n C=3\nD=4", &["1:A=1 2:B=2 3:C=3", "4:D=4"]),
            ("A=on\\\ne B=2", &["1:A=one 2:B=2"]),
            ("A=1 \\  \nB=2", &["1:A=1 2:B=2"]),
            ("#A=1 \\\nB=2", &["2:B=2"]),
            ("A=1 \\\n# B=2\nC=3", &["1:A=1", "3:C=3"]),
            ("A=1 \\", &["1:A=1"]),
            ("A=\"two words\" B=\"\"", &["1:A=two words 1:B="]),
            ("A=\"two \\\nlines\" B=2", &["1:A=two lines 2:B=2"]),
            ("IncludeX=1", &["1:IncludeX=1"]),
            ("A = 1 B= 2 \t C =3", &["1:A=1 1:B=2 1:C=3"]),
            ("A = \"two words\" B=2", &["1:A=two words 1:B=2"]),
            ("A=\"x\",\"y z\" B=2", &["1:A=x,y z 1:B=2"]),
            ("A=\"x\",y B=2", &["1:A=x,y 1:B=2"]),
        ];
        for (text, expected) in table {
            assert_eq!(
                read(&MemoryFiles::default(), text),
                (to_strings(expected), vec![]),
                "{text}"
            );
        }
    }

    #[test]
    fn a_bad_pair_is_an_error_and_the_next_line_is_still_read() {
        let table = [
            ("A", "\"A\": Key=Value expected"),
            ("A B=1", "\"A\": Key=Value expected"),
            ("A = ", "\"A =\": a value expected after ="),
            ("=1", "\"=1\": Key=Value expected"),
            ("A=", "\"A=\": a value expected after ="),
            ("A=\"x", "\"A=\\\"x\": a closing quote expected"),
            ("A=\"x #\"", "\"A=\\\"x\": a closing quote expected"),
            ("A=\"x\"y z", "\"A=\\\"x\\\"y\": a blank expected after the closing quote"),
            ("Include", "Include: \"\": a file name expected"),
            ("Include no", "Include: \"/c/no\": entity not found"),
            ("Include %c.conf", "ClusterName expected on a line before"),
        ];
        for (wrong, expected) in table {
            let (lines, errors) = read(&MemoryFiles::default(), &format!("{wrong}\nB=2"));
            assert_eq!(lines, ["2:B=2"], "{wrong}");
            let [error] = &errors[..] else { panic!("{wrong}: {errors:?}") };
            assert!(error.starts_with("/c/slurm.conf:1: ") && error.contains(expected), "{error}");
        }
    }

    #[test]
    fn pair_that_an_empty_value_swallows_is_told() {
        for (text, told) in [
            ("Prolog= Epilog=/e", Some("slurm.conf:1: Prolog: ")),
            ("A=1\nProlog = \t Epilog=/e B=2", Some("slurm.conf:2: Prolog: ")),
            ("Prolog=Epilog=/e", None),
            ("Prolog= /p Epilog=/e", None),
            ("Prolog= /p/x=y", None),
            ("Prolog= \"Epilog=/e\"", None),
            ("Prolog=\"\" Epilog=/e", None),
        ] {
            let mut findings = Findings::default();
            let path = Path::new("/c/slurm.conf");
            let lines = read_lines(&MemoryFiles::default(), path, text, &mut findings);
            assert!(findings.errors.is_empty() && !lines.is_empty(), "{text}");
            let notices: Vec<String> = findings.notices.iter().map(ToString::to_string).collect();
            match told {
                None => assert!(notices.is_empty(), "{text}: {notices:?}"),
                Some(place) => {
                    let [notice] = &notices[..] else { panic!("{text}: {notices:?}") };
                    assert!(notice.contains(place) && notice.contains("\"Epilog=/e\""), "{notice}");
                }
            }
        }
    }

    #[test]
    fn included_files_take_the_place_of_their_include_line() {
        let files = MemoryFiles::default()
            .with("/c/sub/one", "B=2\n\ninclude two\n")
            .with("/c/two", "C=3")
            .with("/else/lab_nodes", "D=4");
        let text = "ClusterName=lab\nINCLUDE\tsub/one # first\nInclude /else/%c_nodes\nE=5";
        let lines = ["1:ClusterName=lab", "1:B=2", "1:C=3", "1:D=4", "4:E=5"];
        assert_eq!(read(&files, text), (to_strings(&lines), vec![]));
    }

    #[test]
    fn depth_and_length_of_includes_are_bounded() {
        let chain = |count: usize| {
            let link = |files: MemoryFiles, i: usize| {
                let next = if i < count { format!("Include f{}", i + 1) } else { "A=1".into() };
                files.with(format!("/c/f{i}"), next)
            };
            (1..=count).fold(MemoryFiles::default(), link)
        };
        let deepest = read(&chain(INCLUDE_DEPTH_MAX), "Include f1");
        assert_eq!(deepest, (vec!["1:A=1".to_owned()], vec![]));
        let (lines, errors) = read(&chain(INCLUDE_DEPTH_MAX + 1), "Include f1");
        assert!(lines.is_empty());
        assert_eq!(errors, ["/c/f10:1: Include: \"/c/f11\": included more than 10 files deep"]);

        let files = MemoryFiles::default().with("/c/long", "\n".repeat(LINES_MAX - 1));
        assert_eq!(read(&files, "Include long").1.len(), 0);
        let (lines, errors) = read(&files, "Include long\nA=1\nInclude long\n");
        assert!(lines.is_empty());
        assert_eq!(
            errors,
            ["/c/slurm.conf: more than 200000 lines: a configuration this long is refused"]
        );
    }

    fn to_strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }
}
