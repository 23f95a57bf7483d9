//! Offers as jobs are compared with them, the cheapest first.

use super::bin::{Bin, Size};
use super::{MachineView, Source};
use crate::place::demand::Demand;
use model::machine::Offer;
use model::pod::PodKind;
use std::cell::OnceCell;
use std::rc::Rc;

/// An offer of a source, with what tells most jobs that it is too small.
pub(super) struct Choice<'a> {
    pub(super) of: &'a Source,
    /// The place of the source among all.
    pub(super) source: usize,
    pub(super) offer: &'a Offer,
    pub(super) size: Size,
    /// A machine of it; made when a job is tried on it for the first time.
    machine: OnceCell<Rc<Bin>>,
}

impl<'a> Choice<'a> {
    /// All offers, the cheapest first; offers of one price are in the order in which their sources told them.
    pub(super) fn by_price(there: &'a MachineView) -> Rc<[Self]> {
        let offers = there.sources.iter().enumerate().flat_map(|(source, of)| {
            of.offers.iter().map(move |offer| Self {
                of,
                source,
                offer,
                size: Size::of(offer),
                machine: OnceCell::new(),
            })
        });
        let mut choices: Vec<Self> = offers.collect();
        choices.sort_by_key(|choice| choice.offer.price);
        choices.into()
    }

    /// An empty machine of the offer for the job; `None` where it cannot run in a pod of it.
    pub(super) fn machine(&self, demand: &Demand<'_>) -> Option<Rc<Bin>> {
        let of = self.of;
        let name = || format!("{}-new", of.name);
        let fleet = || of.fleet.as_ref().map(|fleet| Rc::from(fleet.name.as_str()));
        if !of.makes_pods {
            let node = || self.offer.node_of(of.reference(), &name(), &of.features);
            let make = || Rc::new(Bin { fleet: fleet(), ..Bin::of(node()) });
            return Some(self.machine.get_or_init(make).clone());
        }
        let template = demand.request.pod.clone()?;
        let part = Size::pod(self.offer, demand);
        let mut config = part.node_of(of.reference(), &name(), &of.features);
        if let Some(kind) = &mut config.machine {
            if !kind.pod.admits(Some(&template)) {
                return None;
            }
            kind.pod = PodKind::Of(template);
        }
        let part = Some(Rc::new(part));
        Some(Rc::new(Bin { part, fleet: fleet(), ..Bin::of(config) }))
    }
}
