//! What of a batch job's `--dependency` a configuration can say.

use ::dstack::configuration::DEPENDENCIES;
use model::dependency::{Dependency, DependencyKind, DependencyTask, DependencyTerm, Join};

/// The terms that `depends_on` has too, and the texts of the others. `?` between terms has no counterpart, nor has any of them then.
pub fn terms(dependency: &Dependency) -> (Vec<String>, Vec<String>) {
    if dependency.join == Join::Any {
        return (Vec::new(), vec![dependency.to_string()]);
    }
    let (own, others): (Vec<&DependencyTerm>, Vec<&DependencyTerm>) =
        dependency.terms.iter().partition(|term| has_counterpart(term));
    let texts = |terms: Vec<&DependencyTerm>| -> Vec<String> {
        terms.iter().map(ToString::to_string).collect()
    };
    (texts(own), texts(others))
}

/// Whether the term is one of a whole job by its number, of a kind that `depends_on` knows, and without minutes.
fn has_counterpart(term: &DependencyTerm) -> bool {
    let text = term.to_string();
    let kind = text.split_once(':').map_or("", |(kind, _)| kind);
    let is_late = matches!(term.kind, DependencyKind::After { minutes } if minutes > 0);
    let is_whole = term.job.is_some_and(|job| job.task == DependencyTask::Whole);
    DEPENDENCIES.contains(&kind) && is_whole && !is_late
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_by_number_are_kept_and_the_others_named() {
        let table: [(&str, &[&str], &[&str]); 7] = [
            ("afterok:12:13", &["afterok:12", "afterok:13"], &[]),
            ("after:5,afternotok:6", &["after:5", "afternotok:6"], &[]),
            ("after:5+3", &[], &["after:5+3"]),
            ("afterok:12_3,afterany:7", &["afterany:7"], &["afterok:12_3"]),
            ("aftercorr:8", &[], &["aftercorr:8"]),
            ("singleton,afterok:9", &["afterok:9"], &["singleton"]),
            ("afterok:1?afterok:2", &[], &["afterok:1?afterok:2"]),
        ];
        for (text, kept, others) in table {
            let dependency = Dependency::parse(text).expect(text);
            let (of_it, besides) = terms(&dependency);
            assert_eq!(
                (&of_it[..], &besides[..]),
                (&owned(kept)[..], &owned(others)[..]),
                "{text}"
            );
        }
    }

    fn owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }
}
