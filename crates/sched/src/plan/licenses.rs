//! Licenses during a plan: which are free, and which the plan has given out.

use super::Planner;
use crate::index::ShapeIndex;

impl<'a> Planner<'a> {
    /// Whether the shape's licenses are free, beside those that advance reservations withhold from it.
    pub(super) fn has_licenses(&mut self, shape: ShapeIndex) -> bool {
        let wanted = &self.queue.shapes[shape.at()].request().licenses;
        if wanted.is_empty() {
            return true;
        }
        let known = self.shape(shape);
        let (access, end) = (known.access.clone(), known.full.length);
        let (windows, now) = (self.timelines.windows, self.timelines.now);
        let free = |name: &str| {
            let end = now.saturating_add(end);
            let kept = windows.licenses_reserved(self.view, &access, name, now, end);
            self.licenses.get(name).copied().unwrap_or(0).saturating_sub(kept)
        };
        wanted.iter().all(|(name, count)| free(name) >= u64::from(*count))
    }

    pub(super) fn take_licenses(&mut self, licenses: &[(String, u32)]) {
        for (name, count) in licenses {
            if let Some(free) = self.licenses.get_mut(name.as_str()) {
                debug_assert!(*free >= u64::from(*count), "a license is taken where it is free");
                *free = free.saturating_sub(u64::from(*count));
            }
        }
    }

    pub(super) fn release_licenses(&mut self, licenses: &'a [(String, u32)]) {
        for (name, count) in licenses {
            *self.licenses.entry(name.as_str()).or_default() += u64::from(*count);
        }
    }
}
