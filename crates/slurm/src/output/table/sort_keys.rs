//! The sort keys of `squeue -S` and `sprio -S`: `P,t,-p`.

use super::format::Column;

/// A letter that no column has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Invalid sort specification: {0}")]
pub struct BadSort(pub String);

/// Columns with their letters, and whether each is descending.
type SortKeys<C> = Vec<(&'static C, char, bool)>;

/// Letters with an optional `+` or `-` before each; commas and white space between them are skipped.
pub fn parse<C: Column>(columns: &'static [C], text: &str) -> Result<SortKeys<C>, BadSort> {
    let mut keys = Vec::new();
    let mut descending = false;
    for letter in text.chars().filter(|c| *c != ',' && !c.is_whitespace()) {
        match letter {
            '+' => descending = false,
            '-' => descending = true,
            letter => {
                let column = columns.iter().find(|column| column.letter() == Some(letter));
                let column = column.ok_or_else(|| BadSort(letter.to_string()))?;
                keys.push((column, letter, descending));
                descending = false;
            }
        }
    }
    Ok(keys)
}
