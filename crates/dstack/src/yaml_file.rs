//! A YAML file as plain values, read within the bounds of configurations: for files that are none of dstack's, as a kubeconfig.

use crate::configuration::fault::Fault;
use crate::configuration::field::Field;
use crate::configuration::tree::yaml;

/// The values of the file, or its first fault.
pub fn values(bytes: &[u8]) -> Result<serde_json::Value, Fault> {
    let tree = yaml::parse(bytes)?;
    Ok(Field::top(&tree).as_it_is().to_json())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_values_or_its_first_fault() {
        let found = values(b"a: [1, 'x']\nb: {c: true}\n").expect("it is good");
        assert_eq!(found, serde_json::json!({"a": [1, "x"], "b": {"c": true}}));
        assert!(values(b"a: [").is_err());
    }
}
