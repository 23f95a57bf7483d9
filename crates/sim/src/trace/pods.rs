//! The lists of nodes and pods of a GPU trace: tables in CSV, plain or gzip, whose first line names the columns.

use super::lines::Lines;
use crate::error::SimError;
use model::hostlist;
use model::printable::is_unprintable;
use std::collections::HashMap;
use std::io::Read;

/// The most rows that are read of a list.
const ROWS_MAX: usize = 1_000_000;
/// The most thousandths of a CPU, MiB of memory and GPUs of a node or pod.
const CPU_MILLI_MAX: u64 = 1_000_000;
const MEMORY_MIB_MAX: u64 = 1 << 30;
const GPUS_MAX: u64 = 64;

/// Thousandths of a GPU that are one.
pub const GPU_MILLI: u32 = 1_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodNode {
    pub name: String,
    pub cpu_milli: u32,
    pub memory_mib: u64,
    pub gpus: u32,
    /// The model of its GPUs; empty without any.
    pub model: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pod {
    pub cpu_milli: u32,
    pub memory_mib: u64,
    pub gpus: u32,
    /// Thousandths of each GPU; all of one where it has several.
    pub gpu_milli: u32,
    /// The models of GPUs that serve; empty: any.
    pub models: Vec<String>,
}

impl Pod {
    /// Thousandths of GPUs in all.
    pub fn gpu_demand(&self) -> u64 {
        u64::from(self.gpus) * u64::from(self.gpu_milli)
    }

    /// Whether it asks for a part of one GPU.
    pub fn shares_a_gpu(&self) -> bool {
        self.gpus == 1 && self.gpu_milli < GPU_MILLI
    }
}

/// Reads a list of nodes: `sn`, `cpu_milli`, `memory_mib`, `gpu` and `model`. Each has a name of its own.
pub fn read_nodes(input: impl Read) -> Result<Vec<PodNode>, SimError> {
    let mut lines_of_names: HashMap<String, u64> = HashMap::new();
    rows(input, |row| {
        let name = row.text("sn")?;
        if !is_node_name(name) {
            let fault = format!("sn {name:?}: expected the name of one node");
            return Err(SimError::line(row.line, fault));
        }
        if let Some(before) = lines_of_names.insert(name.to_owned(), row.line) {
            let fault = format!("sn {name:?}: expected a name that line {before} does not have");
            return Err(SimError::line(row.line, fault));
        }
        Ok(PodNode {
            name: name.to_owned(),
            cpu_milli: row.number("cpu_milli", CPU_MILLI_MAX)? as u32,
            memory_mib: row.number("memory_mib", MEMORY_MIB_MAX)?,
            gpus: row.number("gpu", GPUS_MAX)? as u32,
            model: row.text("model")?.to_owned(),
        })
    })
}

/// Whether the text names one node, and not several or none.
fn is_node_name(text: &str) -> bool {
    let is_one = hostlist::expand(text).is_ok_and(|names| names == [text]);
    is_one && !text.contains(is_unprintable)
}

/// Reads a list of pods: `cpu_milli`, `memory_mib`, `num_gpu`, `gpu_milli` and, where the list has it, `gpu_spec`.
pub fn read_pods(input: impl Read) -> Result<Vec<Pod>, SimError> {
    rows(input, |row| {
        let models = row.optional("gpu_spec").split('|').filter(|model| !model.is_empty());
        let mut models: Vec<String> = models.map(str::to_owned).collect();
        models.sort_unstable();
        models.dedup();
        let gpus = row.number("num_gpu", GPUS_MAX)? as u32;
        let gpu_milli = row.number("gpu_milli", GPU_MILLI.into())? as u32;
        let is_whole = gpu_milli == GPU_MILLI;
        if (gpus > 0 && gpu_milli == 0) || (gpus > 1 && !is_whole) {
            let fault = format!(
                "gpu_milli {gpu_milli} with num_gpu {gpus}: expected {GPU_MILLI}, or less for one GPU"
            );
            return Err(SimError::line(row.line, fault));
        }
        Ok(Pod {
            cpu_milli: row.number("cpu_milli", CPU_MILLI_MAX)? as u32,
            memory_mib: row.number("memory_mib", MEMORY_MIB_MAX)?,
            gpus,
            gpu_milli: if gpus == 0 { 0 } else { gpu_milli },
            models,
        })
    })
}

/// One line of a list.
struct Row<'t> {
    line: u64,
    columns: &'t [String],
    fields: Vec<&'t str>,
}

impl Row<'_> {
    /// The field, or nothing where the list has no such column.
    fn optional(&self, column: &str) -> &str {
        let at = self.columns.iter().position(|name| name == column);
        at.and_then(|at| self.fields.get(at).copied()).unwrap_or_default()
    }

    fn text(&self, column: &str) -> Result<&str, SimError> {
        if !self.columns.iter().any(|name| name == column) {
            return Err(SimError::line(1, format!("expected a column {column}")));
        }
        Ok(self.optional(column))
    }

    fn number(&self, column: &str, most: u64) -> Result<u64, SimError> {
        let text = self.text(column)?;
        let number = text.parse::<u64>().ok().filter(|number| *number <= most);
        number.ok_or_else(|| {
            let fault = format!("{column} {text:?}: expected a whole number of at most {most}");
            SimError::line(self.line, fault)
        })
    }
}

fn rows<T>(
    input: impl Read,
    mut make: impl FnMut(&Row<'_>) -> Result<T, SimError>,
) -> Result<Vec<T>, SimError> {
    let mut lines = Lines::new(input)?;
    let mut columns: Vec<String> = Vec::new();
    let mut found = Vec::new();
    let mut last_line = 1;
    while let Some((line, text)) = lines.read_line()? {
        last_line = line;
        if columns.is_empty() {
            columns = text.split(',').map(|name| name.trim().to_owned()).collect();
            let is_again = |(at, name): &(usize, &String)| columns[..*at].contains(*name);
            if let Some((_, name)) = columns.iter().enumerate().find(is_again) {
                let fault = format!("two columns {name:?}: expected each name once");
                return Err(SimError::line(line, fault));
            }
            continue;
        }
        if text.is_empty() {
            continue;
        }
        let fields: Vec<&str> = text.split(',').map(str::trim).collect();
        if fields.len() != columns.len() {
            let fault = format!("{} fields: expected {}", fields.len(), columns.len());
            return Err(SimError::line(line, fault));
        }
        if found.len() == ROWS_MAX {
            return Err(SimError::line(line, format!("expected at most {ROWS_MAX} rows")));
        }
        found.push(make(&Row { line, columns: &columns, fields })?);
    }
    if found.is_empty() {
        return Err(SimError::line(last_line, "expected a row after the names of the columns"));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_and_pods_are_read_by_the_names_of_their_columns() {
        let nodes = "sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,2,P100\nb,32000,1024,0,\n";
        let nodes = read_nodes(nodes.as_bytes()).expect("a list of nodes");
        assert_eq!((nodes[0].gpus, nodes[0].model.as_str()), (2, "P100"));
        assert_eq!((nodes[1].name.as_str(), nodes[1].cpu_milli), ("b", 32_000));
        let pods = "name,num_gpu,gpu_milli,cpu_milli,memory_mib,gpu_spec\n\
                    p,1,460,6000,12288,V100M32|V100M16|V100M32\nq,8,1000,500,1,\nr,0,1000,500,1,\n";
        let pods = read_pods(pods.as_bytes()).expect("a list of pods");
        let demands: Vec<u64> = pods.iter().map(Pod::gpu_demand).collect();
        assert_eq!(demands, [460, 8_000, 0]);
        assert_eq!(pods[0].models, ["V100M16", "V100M32"]);
        assert!(pods[0].shares_a_gpu() && !pods[1].shares_a_gpu());
    }

    #[test]
    fn nodes_whose_names_are_not_those_of_one_node_each_are_refused() {
        let refused = |text: &str| read_nodes(text.as_bytes()).expect_err("a bad list").to_string();
        let named = |names: [&str; 2]| {
            let rows = names.map(|name| format!("{name},1000,1,1,T4\n")).concat();
            refused(&format!("sn,cpu_milli,memory_mib,gpu,model\n{rows}"))
        };
        assert_eq!(
            named(["a", "a"]),
            "line 3: sn \"a\": expected a name that line 2 does not have"
        );
        for bad in ["", "a[1-3]", "bad name", "b\u{1b}"] {
            let expected = format!("line 3: sn {bad:?}: expected the name of one node");
            assert_eq!(named(["a", bad]), expected);
        }
        assert_eq!(
            refused("sn,cpu_milli,memory_mib,gpu,model,sn\na,1,1,1,T4,b\n"),
            "line 1: two columns \"sn\": expected each name once"
        );
    }

    #[test]
    fn bad_rows_are_named_by_number_value_and_what_would_be_right() {
        let refused = |text: &str| read_pods(text.as_bytes()).expect_err("a bad list").to_string();
        let head = "cpu_milli,memory_mib,num_gpu,gpu_milli";
        assert_eq!(refused("num_gpu\n1\n"), "line 1: expected a column gpu_milli");
        assert_eq!(refused(&format!("{head}\n1,2,3\n")), "line 2: 3 fields: expected 4");
        assert_eq!(
            refused(&format!("{head}\n1,-2,0,0\n")),
            "line 2: memory_mib \"-2\": expected a whole number of at most 1073741824"
        );
        assert_eq!(
            refused(&format!("{head}\n1,2,0,0\n1,2,2,500\n")),
            "line 3: gpu_milli 500 with num_gpu 2: expected 1000, or less for one GPU"
        );
        let empty = "line 1: expected a row after the names of the columns";
        assert_eq!(refused(head), empty);
        assert_eq!(refused(""), empty);
    }
}
