//! How far two lists are the same: lists of a view and of the one before it differ in few places.

use std::sync::Arc;

/// So many entries are compared together: no comparison waits for the one before it.
const AT_ONCE: usize = 32;

/// Whether these are the very same records, one by one.
pub fn are_same<T>(known: &[Arc<T>], new: &[Arc<T>]) -> bool {
    known.len() == new.len()
        && known.iter().zip(new).fold(true, |same, (a, b)| same & Arc::ptr_eq(a, b))
}

/// How many records at the beginning of both lists are the very same.
pub fn same_run<T>(known: &[Arc<T>], new: &[Arc<T>]) -> usize {
    let most = known.len().min(new.len());
    let parts = known[..most].chunks(AT_ONCE).zip(new[..most].chunks(AT_ONCE));
    let begin = parts.take_while(|(a, b)| are_same(a, b)).count() * AT_ONCE;
    let begin = begin.min(most);
    let rest = known[begin..most].iter().zip(&new[begin..most]);
    begin + rest.take_while(|(a, b)| Arc::ptr_eq(a, b)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_ends_at_the_first_difference_or_with_the_shorter_list() {
        let all: Vec<Arc<usize>> = (0..100).map(Arc::new).collect();
        for first in 0..100 {
            let mut other = all.clone();
            other[first] = Arc::new(first);
            assert_eq!(same_run(&all, &other), first);
            assert_eq!(same_run(&all, &other[..first]), first);
            assert_eq!(same_run(&all[..first], &all), first);
        }
        assert_eq!(same_run(&all, &all), 100);
        assert!(are_same(&all, &all) && !are_same(&all, &all[1..]));
    }
}
