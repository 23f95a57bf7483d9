//! The names of output files: `slurm-%j.out`, `sweep-%A_%3a.out`.

/// The default of `--output`.
pub const DEFAULT_OUTPUT: &str = "slurm-%j.out";
/// The default of `--output` for a job array.
pub const DEFAULT_ARRAY_OUTPUT: &str = "slurm-%A_%a.out";

/// Slurm's number for the task of a job that is no array.
const NO_TASK: u32 = 4_294_967_294;

/// Wider than this nothing is padded.
const WIDTH_MAX: usize = 10;

/// The longest path that a kernel opens. In one that is longer no more symbols are filled in: a pattern of many names of a job
/// would otherwise stand for megabytes, in every answer and record that shows it.
const PATH_BYTES_MAX: usize = 4096;

/// The values of a pattern's symbols.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilenameContext<'a> {
    pub job_id: u32,
    /// The array's own id; the job's id where there is no array.
    pub array_job_id: u32,
    pub array_task_id: Option<u32>,
    /// The step's number or name; `None` in the batch script.
    pub step: Option<&'a str>,
    pub node_name: &'a str,
    /// The node's index among the job's nodes.
    pub node_index: u32,
    /// The task's rank.
    pub task: u32,
    pub user: &'a str,
    pub job_name: &'a str,
}

enum Value {
    Number(u32),
    Text(String),
}

impl FilenameContext<'_> {
    fn value(&self, symbol: char) -> Option<Value> {
        let array_task = self.array_task_id.unwrap_or(NO_TASK);
        let value = match symbol {
            'j' => Value::Number(self.job_id),
            'A' => Value::Number(self.array_job_id),
            'a' => Value::Number(array_task),
            'b' => Value::Number(array_task % 10),
            'n' => Value::Number(self.node_index),
            't' => Value::Number(self.task),
            'N' => Value::Text(self.short_node_name().to_owned()),
            'u' => Value::Text(self.user.to_owned()),
            'x' => Value::Text(self.job_name.to_owned()),
            's' => match self.step.map(|step| (step, step.parse())) {
                Some((_, Ok(number))) => Value::Number(number),
                Some((name, Err(_))) => Value::Text(name.to_owned()),
                None => Value::Text("batch".to_owned()),
            },
            'J' => match self.step {
                Some(step) => Value::Text(format!("{}.{step}", self.job_id)),
                None => Value::Number(self.job_id),
            },
            _ => return None,
        };
        Some(value)
    }

    fn short_node_name(&self) -> &str {
        self.node_name.split('.').next().unwrap_or(self.node_name)
    }
}

/// The file that `pattern` names. `%4j` pads a number with zeros; an unknown symbol stays as it is;
/// a backslash anywhere switches all symbols off and is itself taken away. What is too long to be opened ends early, and is still
/// too long.
pub fn expand(pattern: &str, context: &FilenameContext<'_>) -> String {
    if pattern.contains('\\') {
        return unescape(pattern);
    }
    let mut name = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('%') {
        if name.len() > PATH_BYTES_MAX {
            return name;
        }
        name.push_str(before);
        let digits_len = after.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, tail) = after.split_at(digits_len);
        let symbol = tail.chars().next();
        let after_symbol = &tail[symbol.map_or(0, char::len_utf8)..];
        match (symbol, symbol.and_then(|symbol| context.value(symbol))) {
            (_, Some(Value::Text(text))) => name.push_str(&text),
            (_, Some(Value::Number(number))) => {
                let width = digits.parse().unwrap_or(WIDTH_MAX).min(WIDTH_MAX);
                let width = if digits.is_empty() { 0 } else { width };
                name.push_str(&format!("{number:0width$}"));
            }
            (Some('%'), None) if digits.is_empty() => name.push('%'),
            (symbol, None) => {
                name.push('%');
                name.push_str(digits);
                name.extend(symbol);
            }
        }
        rest = after_symbol;
    }
    name.push_str(rest);
    name
}

/// Removes each backslash and keeps the character after it.
fn unescape(pattern: &str) -> String {
    let mut name = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => name.extend(chars.next()),
            c => name.push(c),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    const BATCH: FilenameContext<'static> = FilenameContext {
        job_id: 77,
        array_job_id: 77,
        array_task_id: None,
        step: None,
        node_name: "node1.example.org",
        node_index: 0,
        task: 0,
        user: "alice",
        job_name: "train",
    };

    const TASK: FilenameContext<'static> = FilenameContext {
        job_id: 83,
        array_job_id: 80,
        array_task_id: Some(13),
        step: Some("2"),
        node_index: 1,
        task: 5,
        ..BATCH
    };

    #[test]
    fn symbols_stand_for_the_job() {
        let table = [
            (&BATCH, DEFAULT_OUTPUT, "slurm-77.out"),
            (&BATCH, "env-1node-%A_%a.out", "env-1node-77_4294967294.out"),
            (&BATCH, "%b", "4"),
            (&BATCH, "%J.%s", "77.batch"),
            (&BATCH, "%u-%x-%N", "alice-train-node1"),
            (&TASK, DEFAULT_ARRAY_OUTPUT, "slurm-80_13.out"),
            (&TASK, "%j %A %a %b %J %s %n %t", "83 80 13 3 83.2 2 1 5"),
            (&TASK, "%4j-%3t-%02n-%0a", "0083-005-01-13"),
            (&TASK, "%99j", "0000000083"),
            (&TASK, "%5u", "alice"),
            (&TASK, "100%%-%q-%5q-%", "100%-%q-%5q-%"),
            (&TASK, "%%j", "%j"),
            (&TASK, "\\%j", "%j"),
            (&TASK, "%j\\\\%j", "%j\\%j"),
            (&TASK, "né%x%é", "nétrain%é"),
            (&TASK, "", ""),
        ];
        for (context, pattern, name) in table {
            assert_eq!(expand(pattern, context), name, "{pattern}");
        }
    }

    #[test]
    fn pattern_that_is_too_long_to_be_opened_is_not_filled_in_further() {
        let job_name = "x".repeat(1000);
        let context = FilenameContext { job_name: &job_name, ..BATCH };
        let name = expand(&"%x".repeat(8000), &context);
        assert!((4097..=5100).contains(&name.len()), "{} bytes", name.len());
        assert_eq!(expand(&"%x".repeat(4), &context), job_name.repeat(4), "a path that may be");
    }
}
