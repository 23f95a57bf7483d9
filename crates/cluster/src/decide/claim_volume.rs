//! Volumes that are claims of Kubernetes: which may be registered, and what of a job's volumes its pods mount.

use super::volume::is_same_or_below;
use crate::state::State;
use crate::state::disk_use::DiskVolume;
use model::cloud_source::SourceKind;
use model::cloud_volume::{ClaimTerms, CloudPlace};
use model::pod::{OWN_PATHS, PodClaim, PodTemplate};
use model::pod_source::{ACCESS_MODES, KubernetesConfig, USUAL_ACCESS_MODE};
use model::reason::Refusal;
use model::run::JobSpec;
use model::volume::VolumeUse;

/// The longest name of an object of Kubernetes, and what it must look like.
const NAME_BYTES_MAX: usize = 253;
const NAME_RULE: &str =
    "expected at most 253 small letters, digits, - and ., a letter or digit at its ends";

fn refused(why: String) -> Refusal {
    Refusal::Other(why)
}

/// Whether it names an object, and leads nowhere else in an address.
fn is_object_name(name: &str) -> bool {
    let is_end = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b);
    name.len() <= NAME_BYTES_MAX
        && name.bytes().all(is_plain)
        && is_end(name.bytes().next())
        && is_end(name.bytes().last())
}

fn checked_name(what: &str, name: &str) -> Result<(), Refusal> {
    if is_object_name(name) {
        return Ok(());
    }
    Err(Refusal::InvalidValue {
        what: what.into(),
        value: name.chars().take(80).collect(),
        expected: NAME_RULE.into(),
    })
}

impl State {
    fn pod_sources(&self) -> impl Iterator<Item = (&str, &KubernetesConfig)> {
        self.sources().filter_map(|source| match &source.kind {
            SourceKind::Kubernetes(config) => Some((source.name.as_str(), &**config)),
            _ => None,
        })
    }

    /// Checks what is said of a claim that is to be made or registered, and adds what is usual.
    pub(super) fn settle_claim(&self, place: &mut CloudPlace) -> Result<(), Refusal> {
        let Some(terms) = &mut place.claim else { return Ok(()) };
        if let Some(name) = &place.existing {
            checked_name("claim_name", name)?;
            // The claim has its own, which the API tells.
            (terms.access_modes, terms.storage_class_name) = (Vec::new(), None);
            return self.check_registered(&place.source, name);
        }
        if let Some(class) = &terms.storage_class_name {
            checked_name("storage_class_name", class)?;
        }
        let is_unknown = |mode: &&String| !ACCESS_MODES.contains(&mode.as_str());
        if let Some(mode) = terms.access_modes.iter().find(is_unknown) {
            return Err(Refusal::InvalidValue {
                what: "access_modes".into(),
                value: mode.chars().take(80).collect(),
                expected: format!("expected {}", ACCESS_MODES.join(", ")),
            });
        }
        terms.access_modes.sort_unstable();
        terms.access_modes.dedup();
        if terms.access_modes.is_empty() {
            terms.access_modes.push(USUAL_ACCESS_MODE.into());
        }
        Ok(())
    }

    /// Refuses to register a claim of the site, which holds what is others', and one that is a volume already.
    fn check_registered(&self, source: &str, claim: &str) -> Result<(), Refusal> {
        let mut of_site = self.pod_sources().flat_map(|(_, config)| &config.claims);
        if of_site.any(|mount| mount.may_be(claim)) {
            return Err(refused(format!("claim {claim} is the site's: expected another one")));
        }
        let is_it = |of: &DiskVolume<'_>| {
            let place = of.volume.cloud().filter(|place| place.source == source);
            place.is_some_and(|place| place.existing.as_deref() == Some(claim))
        };
        match self.disk_volumes().find(is_it) {
            Some(of) => Err(refused(format!(
                "claim {claim} is volume {} of project {} already",
                of.name, of.project
            ))),
            None => Ok(()),
        }
    }

    /// The claims that the pods of a job mount, which are all of its volumes or none.
    pub(super) fn claims_of(&self, spec: &JobSpec) -> Result<Vec<PodClaim>, Refusal> {
        let nodes = spec.request().nodes;
        let nodes = nodes.max.unwrap_or(nodes.min).max(1);
        let (mut claims, mut other) = (Vec::new(), None);
        for used in &spec.launch.volumes {
            match self.claim_volumes(used, nodes) {
                Some(of) => claims.push(self.claim_of(used, &of, nodes)?),
                None => other = other.or(Some(&used.name)),
            }
        }
        match other.filter(|_| !claims.is_empty()) {
            Some(other) => Err(refused(format!(
                "volume {other} cannot be in a pod, and others of the job are claims of Kubernetes"
            ))),
            None => Ok(claims),
        }
    }

    /// The claim of one use: one volume for all nodes of the job, or one for each rank, which are all of one source.
    fn claim_of(
        &self,
        used: &VolumeUse,
        of: &[DiskVolume<'_>],
        nodes: u32,
    ) -> Result<PodClaim, Refusal> {
        let (name, path) = (&used.name, &used.path);
        let places: Vec<&CloudPlace> = of.iter().filter_map(|of| of.volume.cloud()).collect();
        let terms: Vec<&ClaimTerms> =
            places.iter().filter_map(|place| place.claim.as_deref()).collect();
        let is_shared = terms.iter().all(|terms| terms.is_shared());
        if !used.is_by_rank() && !is_shared && nodes > 1 {
            let modes = terms.first().map(|terms| terms.access_modes.join(", "));
            return Err(refused(format!(
                "volume {name} is one pod's at a time ({}), and the job is on {nodes} nodes: \
                 expected one with the access mode ReadWriteMany, or one for each, as in \
                 {name}-${{{{ dstack.node_rank }}}}",
                modes.unwrap_or_default()
            )));
        }
        let source = places.first().map(|place| place.source.as_str()).unwrap_or_default();
        let of_source = self.pod_sources().filter(|(name, _)| *name == source);
        let of_site = of_source.flat_map(|(_, config)| &config.claims);
        let mut taken = of_site.map(|mount| mount.path.as_str()).chain(OWN_PATHS);
        let is_beside = |own: &str| !is_same_or_below(path, own) && !is_same_or_below(own, path);
        if let Some(taken) = taken.find(|own| !is_beside(own)) {
            return Err(refused(format!(
                "volume {name} at {path}: pods of source {source} have {taken} already"
            )));
        }
        let id = |of: &DiskVolume<'_>| {
            let id = of.volume.disk.as_ref().and_then(|disk| disk.id.clone());
            id.ok_or_else(|| refused(format!("volume {} is not made yet", of.name)))
        };
        let names: Vec<String> = of.iter().map(id).collect::<Result<_, Refusal>>()?;
        let is_by_rank = names.len() > 1;
        Ok(PodClaim {
            claim_name: names.first().cloned().unwrap_or_default(),
            of_ranks: if is_by_rank { names } else { Vec::new() },
            path: path.clone(),
            read_only: used.read_only || terms.iter().any(|terms| terms.read_only),
            is_own: places.iter().all(|place| place.existing.is_none()),
            is_exclusive: is_by_rank || !is_shared,
        })
    }

    /// The first rank whose pod can be made now: no claim of it that is one pod's at a time is in another pod of the source. `None`
    /// while there is no such rank.
    pub(super) fn free_rank(&self, source: &str, pod: &PodTemplate) -> Option<u32> {
        (0..pod.ranks()).find(|rank| {
            let mut exclusive = pod.claims.iter().filter(|claim| claim.is_exclusive);
            !exclusive.any(|of| self.pods_with_claim(source, of.name_on(*rank)).next().is_some())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_has_a_name_that_leads_nowhere_else() {
        for good in ["data", "data-1.a", "7", &"x".repeat(253)] {
            assert!(is_object_name(good), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a?b", "A", "-a", "a-", "a b", "%2e", &"x".repeat(254)] {
            assert!(!is_object_name(bad), "{bad}");
        }
    }
}
