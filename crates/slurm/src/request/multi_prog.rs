//! The file of `srun --multi-prog`: which ranks run which program.

/// The longest file that is read.
pub const FILE_BYTES_MAX: u64 = 1 << 20;
/// The most tasks that a file may describe.
const TASKS_MAX: u32 = 1 << 20;

/// A line of the file after its ranks.
struct RankProgram {
    /// In the order of the line; `None` for `*`.
    ranks: Option<Vec<u32>>,
    command: String,
}

/// The program of each rank, followed by the arguments of the command line (`more`); or lines that say what is wrong.
pub fn programs(
    file: &str,
    text: &str,
    tasks: u32,
    more: &[String],
) -> Result<Vec<Vec<String>>, Vec<String>> {
    let mut programs: Vec<Option<Vec<String>>> = vec![None; tasks as usize];
    let mut rest_is_given = false;
    for (number, line) in logical_lines(text) {
        let invalid = |detail: Option<String>| {
            let line = format!("Line {number} of configuration file {file} invalid");
            detail.into_iter().chain([line]).collect::<Vec<_>>()
        };
        if rest_is_given {
            let detail = "Task range specification with asterisk must be last".to_owned();
            return Err(invalid(Some(detail)));
        }
        let record = record(&line, tasks).map_err(invalid)?;
        let fill = |rank: u32, offset: u32| {
            let mut argv = arguments(&record.command, rank, offset);
            argv.extend(more.iter().cloned());
            argv
        };
        match &record.ranks {
            Some(ranks) => {
                for (offset, rank) in ranks.iter().enumerate() {
                    let place = &mut programs[*rank as usize];
                    if place.is_some() {
                        return Err(invalid(Some(format!("Duplicate record for task {rank}"))));
                    }
                    *place = Some(fill(*rank, offset as u32));
                }
            }
            None => {
                rest_is_given = true;
                let open = programs.iter_mut().enumerate().filter(|(_, p)| p.is_none());
                open.for_each(|(rank, place)| *place = Some(fill(rank as u32, rank as u32)));
            }
        }
    }
    let missing = programs.iter().position(Option::is_none);
    if let Some(rank) = missing {
        let line = format!("Configuration file {file} invalid, no record for task id {rank}");
        return Err(vec![line]);
    }
    Ok(programs.into_iter().flatten().collect())
}

/// The number of tasks that the file describes, up to its highest rank; `None` if it names no rank, or one above
/// [`TASKS_MAX`].
pub fn count(text: &str) -> Option<u32> {
    let lines = logical_lines(text);
    let ranks = lines.iter().filter_map(|(_, line)| line.split_whitespace().next());
    let numbers = ranks.flat_map(|ranks| ranks.split([',', '-'])).filter_map(|n| n.parse().ok());
    numbers.max().filter(|highest: &u32| *highest < TASKS_MAX).map(|highest| highest + 1)
}

/// The lines with their numbers, without comments and empty lines. A line that ends in a backslash is joined to the next.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (index, line) in text.lines().enumerate() {
        let (number, mut whole) = open.take().unwrap_or((index + 1, String::new()));
        match line.strip_suffix('\\') {
            Some(part) => {
                whole.push_str(part);
                open = Some((number, whole));
            }
            None => {
                whole.push_str(line);
                lines.push((number, whole));
            }
        }
    }
    lines.extend(open);
    let says = |(_, line): &(usize, String)| {
        let line = line.trim_start();
        !line.is_empty() && !line.starts_with('#')
    };
    lines.into_iter().filter(says).collect()
}

/// Reads one line. The error has a detail if there is more to say than that the line is invalid.
fn record(line: &str, tasks: u32) -> Result<RankProgram, Option<String>> {
    let line = line.trim();
    let (ranks, command) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let ranks = if ranks == "*" { None } else { Some(rank_list(ranks, tasks)?) };
    let command = command.trim();
    if command.is_empty() {
        return Err(None);
    }
    Ok(RankProgram { ranks, command: command.to_owned() })
}

fn rank_list(text: &str, tasks: u32) -> Result<Vec<u32>, Option<String>> {
    let mut ranks = Vec::new();
    for part in text.split(',') {
        if !part.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(Some(format!("Invalid task range specification ({text})")));
        }
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let to = if to.is_empty() { from } else { to };
        let (from, to) = match (from.parse::<u32>(), to.parse::<u32>()) {
            (Ok(from), Ok(to)) => (from, to),
            _ => return Err(Some("Invalid task range specification".to_owned())),
        };
        if from > to {
            return Err(Some(format!("Invalid task range, {from}-{to}")));
        }
        if to >= tasks {
            return Err(Some(format!("Invalid task id, {to} >= ntasks")));
        }
        ranks.extend(from..=to);
        // More entries than tasks: some rank is named twice.
        if ranks.len() > tasks as usize {
            return Err(Some(format!("Duplicate record for task {to}")));
        }
    }
    Ok(ranks)
}

/// Splits a command at white space. Single quotes and backslashes keep their content as it is; double quotes are ordinary
/// characters. `%t` is the rank, `%o` its position in the line; any other `%` is dropped with the character after it.
fn arguments(command: &str, rank: u32, offset: u32) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = command.chars();
    while let Some(letter) = letters.next() {
        if letter.is_whitespace() {
            words.extend(word.take());
            continue;
        }
        let word = word.get_or_insert_default();
        match letter {
            '\'' => word.extend(letters.by_ref().take_while(|c| *c != '\'')),
            '\\' => word.extend(letters.next()),
            '%' => match letters.next() {
                Some('t') => word.push_str(&rank.to_string()),
                Some('o') => word.push_str(&offset.to_string()),
                _ => {}
            },
            other => word.push(other),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        match programs("f", text, 4, &["extra".to_owned()]) {
            Ok(programs) => {
                let shown: Vec<String> = programs.iter().map(|argv| argv.join("|")).collect();
                shown.join(" ; ")
            }
            Err(lines) => lines.join(" / "),
        }
    }

    #[test]
    fn multi_prog_files_are_read_as_slurm_reads_them() {
        let table = [
            (
                "# comment\n0-1 echo A %t %o x\n2,3 /bin/echo B %t %o 'q %t'\\\n more\n",
                "echo|A|0|0|x|extra ; echo|A|1|1|x|extra ; /bin/echo|B|2|0|q %t|more|extra ; \
                 /bin/echo|B|3|1|q %t|more|extra",
            ),
            (
                "0 echo zero\n* echo star t%t o%o\n",
                "echo|zero|extra ; echo|star|t1|o1|extra ; echo|star|t2|o2|extra ; \
                 echo|star|t3|o3|extra",
            ),
            (
                "\n  \n  # indented\n0-3 p e\\ f g\\h \"i  j\" n'o p'q %%t %x.\n",
                "p|e f|gh|\"i|j\"|no pq|t|.|extra ; p|e f|gh|\"i|j\"|no pq|t|.|extra ; \
                 p|e f|gh|\"i|j\"|no pq|t|.|extra ; p|e f|gh|\"i|j\"|no pq|t|.|extra",
            ),
            ("0,1-2 p %o\n3 p\n", "p|0|extra ; p|1|extra ; p|2|extra ; p|extra"),
            ("0 echo zero\n", "Configuration file f invalid, no record for task id 1"),
            ("", "Configuration file f invalid, no record for task id 0"),
            (
                "0-1 a\n1-3 b\n",
                "Duplicate record for task 1 / Line 2 of configuration file f invalid",
            ),
            ("0-5 a\n", "Invalid task id, 5 >= ntasks / Line 1 of configuration file f invalid"),
            ("4-0 a\n", "Invalid task range, 4-0 / Line 1 of configuration file f invalid"),
            (
                "x a\n",
                "Invalid task range specification (x) / Line 1 of configuration file f invalid",
            ),
            (
                "0-1-3 a\n",
                "Invalid task range specification / Line 1 of configuration file f invalid",
            ),
            ("0-3\n", "Line 1 of configuration file f invalid"),
            (
                "* a\n0 b\n",
                "Task range specification with asterisk must be last / \
                 Line 2 of configuration file f invalid",
            ),
        ];
        for (text, expected) in table {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn the_highest_rank_gives_the_number_of_tasks() {
        let table = [
            ("# 9\n0-1 a\n2,3 b 7\n", Some(4)),
            ("0 a\n* b\n", Some(1)),
            ("* b\n", None),
            ("0-4000000000 a\n", None),
        ];
        for (text, expected) in table {
            assert_eq!(count(text), expected, "{text}");
        }
    }
}
