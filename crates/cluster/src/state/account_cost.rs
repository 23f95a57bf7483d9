//! What the jobs of accounts have cost, by calendar month (UTC), and what their budgets have left.
//!
//! A job's cost is charged with its usage: at its end, and at each period while it runs. What was not charged yet is added when
//! somebody asks. It counts for its account and for every account above. What no job has of a source's machines is the cost of
//! the account that the site names for the source, or of nobody: what jobs were charged and this are what the machines cost.

use crate::state::State;
use crate::state::job::Job;
use model::attempt::Attempt;
use model::budget::Budget;
use model::id::JobId;
use model::month::month_of;
use model::price::{Cost, Price};
use model::time::Timestamp;
use sched::machines::AccountBudget;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// For how many months the costs of an account are kept.
const MONTHS_MAX: usize = 24;

/// What an account's jobs have cost in a month, and cost in an hour now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AccountCost {
    pub month: Cost,
    pub price_hour: Price,
}

impl State {
    /// Charges the accounts of a job for the time from `from` to `until` on its nodes.
    pub(crate) fn charge_cost(&mut self, id: JobId, from: Timestamp, until: Timestamp) {
        let job = &self.jobs[&id];
        let price = job.attempt().map(|attempt| attempt.allocation.price()).unwrap_or_default();
        if price == Price::default() {
            return;
        }
        let (length, month) = (until.since(from), month_of(until));
        let (cost, served) = (price.for_time(length), self.prices_of_sources(job));
        for account in self.billed_accounts(job) {
            add_cost(self.account_costs.entry(account).or_default(), &month, cost);
        }
        for (source, price) in served {
            let cost = price.for_time(length);
            add_cost(self.served_costs.entry(source).or_default(), &month, cost);
        }
    }

    /// What an hour of the job's shares costs on machines of each source.
    fn prices_of_sources(&self, job: &Job) -> BTreeMap<String, Price> {
        let mut prices: BTreeMap<String, Price> = BTreeMap::new();
        let shares = job.attempt().map(|attempt| &attempt.allocation.nodes[..]);
        for share in shares.unwrap_or_default() {
            let machine = self.nodes.get(&share.node).and_then(|node| node.config.machine.as_ref());
            if let (Some(machine), Some(price)) = (machine, share.price) {
                let sum = prices.entry(machine.source.clone()).or_default();
                *sum = *sum + price;
            }
        }
        prices
    }

    /// What the machines and disks of a source have cost in the month of `now` that no job was charged for: time in which they
    /// booted, were idle or had room.
    pub fn idle_cost(&self, source: &str, now: Timestamp) -> Cost {
        let kept = self.served_costs.get(source).and_then(|months| months.get(&month_of(now)));
        let active = self.active.iter().filter_map(|id| self.jobs.get(id));
        let open: Cost = active
            .filter_map(|job| {
                let price = self.prices_of_sources(job).remove(source)?;
                Some(price.for_time(uncharged(job.attempt()?, now)))
            })
            .sum();
        self.machine_costs(source, now).less(kept.copied().unwrap_or_default() + open)
    }

    /// The accounts that pay for what no job has of the machines of a source: the one that the site names, and those above.
    fn idle_accounts(&self, account: &str) -> BTreeSet<String> {
        let tree = self.tree();
        let at = tree.find(account, "", None);
        let above = at.into_iter().flat_map(|at| tree.chain(at).map(|of| of.account.clone()));
        above.chain([account.to_owned()]).collect()
    }

    /// The job's account and those above it.
    pub(crate) fn billed_accounts(&self, job: &Job) -> BTreeSet<String> {
        let tree = self.tree();
        let at = tree.find(&job.account, &job.spec.owner.name, None);
        let above = at.into_iter().flat_map(|at| tree.chain(at).map(|of| of.account.clone()));
        let mut accounts: BTreeSet<String> = above.collect();
        accounts.insert(job.account.to_string());
        accounts
    }

    /// The costs of all accounts in the month of `now`.
    pub fn account_costs_at(&self, now: Timestamp) -> BTreeMap<String, AccountCost> {
        let month = month_of(now);
        let kept = self.account_costs.iter().filter_map(|(account, months)| {
            let cost = AccountCost { month: *months.get(&month)?, price_hour: Price::default() };
            Some((account.clone(), cost))
        });
        let mut costs: BTreeMap<String, AccountCost> = kept.collect();
        let active = self.active.iter().filter_map(|id| self.jobs.get(id));
        for (job, attempt) in active.filter_map(|job| Some((job, job.attempt()?))) {
            let price = attempt.allocation.price();
            if price == Price::default() {
                continue;
            }
            let open = price.for_time(uncharged(attempt, now));
            for account in self.billed_accounts(job) {
                let cost = costs.entry(account).or_default();
                cost.month = cost.month + open;
                cost.price_hour = cost.price_hour + price;
            }
        }
        for source in self.sources() {
            let Some(account) = &source.account else { continue };
            let idle = self.idle_cost(&source.name, now);
            for account in self.idle_accounts(account) {
                let cost = costs.entry(account).or_default();
                cost.month = cost.month + idle;
            }
        }
        costs
    }

    /// The budgets, with what each account has spent of its own.
    pub fn budgets_at(&self, now: Timestamp) -> Vec<(&Budget, AccountCost)> {
        let budgets = &self.config.budgets;
        if budgets.is_empty() {
            return Vec::new();
        }
        let costs = self.account_costs_at(now);
        let spent = |of: &Budget| costs.get(&of.account).copied().unwrap_or_default();
        budgets.iter().map(|of| (of, spent(of))).collect()
    }

    /// The budgets as the scheduler is shown them: a further hour of what runs is kept for it. Machines on their way, which no
    /// job has yet, count for the account of the job that they were made for.
    pub(super) fn budget_view(&self, now: Timestamp) -> BTreeMap<String, AccountBudget> {
        self.budget_view_beside(&BTreeSet::new(), now)
    }

    /// The same without the shares that jobs have of these nodes: their machines are still to be asked for, and each counts as
    /// a whole then.
    pub(crate) fn budget_view_beside(
        &self,
        nodes: &BTreeSet<&str>,
        now: Timestamp,
    ) -> BTreeMap<String, AccountBudget> {
        let mut view: BTreeMap<String, AccountBudget> = BTreeMap::new();
        let budgets = self.budgets_at(now);
        if budgets.is_empty() {
            return view;
        }
        let unmade = self.prices_on(nodes);
        for (budget, spent) in budgets {
            let unmade = unmade.get(&budget.account).copied().unwrap_or_default();
            let units = spent.price_hour.units().saturating_sub(unmade.units());
            let hour = Price::from_units(units).for_time(HOUR);
            let left = budget.month.less(spent.month + hour);
            let of = AccountBudget { month: budget.month, left };
            view.insert(budget.account.clone(), of);
        }
        let waiting = self.machines.values().filter(|machine| machine.is_live());
        for machine in waiting {
            let job = machine.job.and_then(|id| self.job(id)).filter(|job| job.is_waiting());
            let Some(job) = job else { continue };
            for account in self.billed_accounts(job) {
                if let Some(of) = view.get_mut(&account) {
                    of.left = of.left.less(machine.offer.price.for_time(HOUR));
                }
            }
        }
        view
    }

    /// What the shares that running jobs have of these nodes cost in an hour, by account.
    fn prices_on(&self, nodes: &BTreeSet<&str>) -> BTreeMap<String, Price> {
        let mut prices: BTreeMap<String, Price> = BTreeMap::new();
        if nodes.is_empty() {
            return prices;
        }
        let active = self.active.iter().filter_map(|id| self.jobs.get(id));
        for (job, attempt) in active.filter_map(|job| Some((job, job.attempt()?))) {
            let shares = attempt.allocation.nodes.iter();
            let shares = shares.filter(|share| nodes.contains(share.node.as_str()));
            let price: Price = shares.filter_map(|share| share.price).sum();
            if price == Price::default() {
                continue;
            }
            for account in self.billed_accounts(job) {
                let sum = prices.entry(account).or_default();
                *sum = *sum + price;
            }
        }
        prices
    }
}

fn add_cost(months: &mut BTreeMap<String, Cost>, month: &str, cost: Cost) {
    let sum = months.entry(month.to_owned()).or_default();
    *sum = *sum + cost;
    while months.len() > MONTHS_MAX {
        months.pop_first();
    }
}

/// The time that the attempt was not charged for yet.
fn uncharged(attempt: &Attempt, now: Timestamp) -> Duration {
    if attempt.suspended {
        return Duration::ZERO;
    }
    now.since(attempt.charged_until.unwrap_or(attempt.start))
}
