//! The variables of `--mem-bind`.

use model::binding::MemBinding;

/// The variables that tell tasks, and the steps of a batch job, how their memory is bound.
pub fn mem_bind_variables(binding: &MemBinding) -> Vec<(&'static str, String)> {
    let (kind, list) = binding.kind_and_list();
    let mut variables = vec![
        ("SLURM_MEM_BIND", binding.whole_text()),
        ("SLURM_MEM_BIND_LIST", list),
        ("SLURM_MEM_BIND_TYPE", kind.to_owned()),
        ("SLURM_MEM_BIND_VERBOSE", binding.verbosity().to_owned()),
    ];
    if binding.prefer {
        variables.push(("SLURM_MEM_BIND_PREFER", "prefer".to_owned()));
    }
    if binding.sort {
        variables.push(("SLURM_MEM_BIND_SORT", "sort".to_owned()));
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::option::value::cpu_bind::mem_bind;

    #[test]
    fn a_mask_is_told_with_its_type_and_list() {
        let variables = mem_bind_variables(&mem_bind("mask_mem:0x1,3").expect("masks"));
        assert_eq!(variables[0], ("SLURM_MEM_BIND", "quiet,mask_mem:1,3".to_owned()));
        assert_eq!(variables[2], ("SLURM_MEM_BIND_TYPE", "mask_mem:".to_owned()));
        assert_eq!(variables.len(), 4);
    }
}
