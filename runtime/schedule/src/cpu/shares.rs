//! Whose turn it is among several tenants: start-time fair queuing.
//!
//! A tenant's virtual time is what slots have spent on it, divided by its share; whoever of those that wait is furthest behind has the next
//! turn. Who comes after a while begins where the others are: nobody saves up turns. Beside a tenant that wants all it can get, another
//! that wants little waits for no more than the turn under way.

use std::collections::BTreeMap;

/// The share of whoever was given none.
pub const SHARE_DEFAULT: u32 = 100;
/// What shares can be.
pub const SHARE_MAX: u32 = 10_000;

/// For whom a task works, and how much of the slots is for that one where several want them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tenant {
    /// Who it is; 0: the system itself, and whoever has no limits.
    pub id: u64,
    /// Its part, compared with those of others: 1 to [`SHARE_MAX`].
    pub share: u32,
}

impl Default for Tenant {
    fn default() -> Self {
        Tenant {
            id: 0,
            share: SHARE_DEFAULT,
        }
    }
}

#[derive(Debug, Default)]
struct Account {
    /// Virtual time: nanoseconds of slots, for a share of [`SHARE_DEFAULT`].
    passed_ns: u64,
    /// Its tasks that wait or run.
    tasks: usize,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Shares {
    accounts: BTreeMap<u64, Account>,
    /// The virtual time of whoever had the last turn.
    now_ns: u64,
}

impl Shares {
    /// A task of a tenant begins to wait, which did not run before.
    pub fn arrives(&mut self, tenant: Tenant) {
        let now_ns = self.now_ns;
        let account = self.accounts.entry(tenant.id).or_default();
        if account.tasks == 0 {
            account.passed_ns = account.passed_ns.max(now_ns);
        }
        account.tasks += 1;
    }

    /// A task of a tenant waits no more, and does not run.
    pub fn leaves(&mut self, tenant: Tenant) {
        let Some(account) = self.accounts.get_mut(&tenant.id) else {
            return;
        };
        account.tasks = account.tasks.saturating_sub(1);
        // It would begin there anyway.
        if account.tasks == 0 && account.passed_ns <= self.now_ns {
            self.accounts.remove(&tenant.id);
        }
    }

    /// A task of a tenant has the next turn.
    pub fn turns_to(&mut self, tenant: Tenant) {
        self.now_ns = self.now_ns.max(self.passed_ns(tenant.id));
        // Those that went ahead and have left: the others have reached them.
        let now_ns = self.now_ns;
        self.accounts
            .retain(|_, account| account.tasks > 0 || account.passed_ns > now_ns);
    }

    /// A slot was spent on a task of a tenant for so long.
    pub fn served(&mut self, tenant: Tenant, time_ns: u64) {
        let share = u64::from(tenant.share.clamp(1, SHARE_MAX));
        let account = self.accounts.entry(tenant.id).or_default();
        let passed_ns = time_ns.saturating_mul(u64::from(SHARE_DEFAULT)) / share;
        account.passed_ns = account.passed_ns.saturating_add(passed_ns);
    }

    /// How far a tenant is: the one who is least far is next.
    pub fn passed_ns(&self, tenant: u64) -> u64 {
        self.accounts
            .get(&tenant)
            .map_or(self.now_ns, |account| account.passed_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN_NS: u64 = 1_000_000;

    fn tenant(id: u64, share: u32) -> Tenant {
        Tenant { id, share }
    }

    /// Gives turns to whoever is least far of these, which always want one; how many each has had.
    fn turns(shares: &mut Shares, tenants: &[Tenant], count: usize) -> Vec<usize> {
        let mut had = vec![0; tenants.len()];
        for _ in 0..count {
            let next = (0..tenants.len()).min_by_key(|at| shares.passed_ns(tenants[*at].id));
            let next = next.unwrap();
            shares.turns_to(tenants[next]);
            shares.served(tenants[next], TURN_NS);
            had[next] += 1;
        }
        had
    }

    #[test]
    fn turns_are_given_by_shares() {
        let tenants = [tenant(1, 100), tenant(2, 300), tenant(3, 100)];
        let mut shares = Shares::default();
        tenants.iter().for_each(|tenant| shares.arrives(*tenant));
        assert_eq!(turns(&mut shares, &tenants, 500), [100, 300, 100]);
    }

    #[test]
    fn nobody_saves_up_turns_and_nobody_pays_for_the_past() {
        let (old, new) = (tenant(1, 100), tenant(2, 100));
        let mut shares = Shares::default();
        shares.arrives(old);
        turns(&mut shares, &[old], 1_000);
        shares.arrives(new);
        let had = turns(&mut shares, &[old, new], 100);
        assert!((49..=51).contains(&had[0]), "{had:?}");
        // The new one goes, and comes again when the other is much further.
        shares.leaves(new);
        turns(&mut shares, &[old], 1_000);
        shares.arrives(new);
        let had = turns(&mut shares, &[old, new], 100);
        assert!((49..=51).contains(&had[0]), "{had:?}");
    }

    #[test]
    fn whoever_has_gone_is_forgotten() {
        let mut shares = Shares::default();
        for id in 1..1_000 {
            let tenant = tenant(id, 100);
            shares.arrives(tenant);
            turns(&mut shares, &[tenant], 3);
            shares.leaves(tenant);
        }
        let last = tenant(1_000, 100);
        shares.arrives(last);
        turns(&mut shares, &[last], 10);
        assert!(shares.accounts.len() <= 2, "{}", shares.accounts.len());
    }
}
