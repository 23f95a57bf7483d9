//! How often signing in fails, by where it comes from and for whom. Beyond a rate a failure is answered with the time after which to
//! try again. Only failures are counted: a token that is good is taken from wherever it comes, so nobody can lock another out.

use crate::http::peer::network;
use crate::rate_limit::{OwnerRates, RateLimit};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Sign-ins that fail, from one address and for one account.
const FAILURES: RateLimit = RateLimit { burst: 20, interval: Duration::from_secs(6) };

/// Browsers of one address that are sent to the identity provider. The places of those that are there are bounded, and the first
/// makes room: nobody may fill them alone.
const SIGN_ONS: RateLimit = RateLimit { burst: 60, interval: Duration::from_secs(1) };

/// The account names that are told apart are at most this long.
const ACCOUNT_CHARS_MAX: usize = 64;

/// A sign-in that failed. It is put into the extensions of the response that refuses it.
#[derive(Debug, Clone, Default)]
pub struct FailedSignIn {
    /// For whom, where that is known.
    pub account: Option<String>,
}

#[derive(Default)]
pub struct FailedSignIns {
    addresses: OwnerRates<IpAddr>,
    accounts: OwnerRates<String>,
    sign_ons: OwnerRates<IpAddr>,
}

impl FailedSignIns {
    /// Notes a failure. The error is how long to wait, where too many have failed.
    pub fn note(&self, from: IpAddr, failed: &FailedSignIn, now: Instant) -> Result<(), Duration> {
        let of_address = self.addresses.take(FAILURES, network(from), now);
        let of_account = match &failed.account {
            Some(name) => {
                let name = name.chars().take(ACCOUNT_CHARS_MAX).collect();
                self.accounts.take(FAILURES, name, now)
            }
            None => Ok(()),
        };
        match (of_address, of_account) {
            (Err(one), Err(other)) => Err(one.max(other)),
            (one, other) => one.and(other),
        }
    }

    /// Notes that a browser is sent to the identity provider. The error is how long to wait, where too many were.
    pub fn note_sign_on(&self, from: IpAddr, now: Instant) -> Result<(), Duration> {
        self.sign_ons.take(SIGN_ONS, network(from), now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn of(account: &str) -> FailedSignIn {
        FailedSignIn { account: Some(account.to_owned()) }
    }

    #[test]
    fn failures_of_one_address_wait_and_those_of_another_do_not() {
        let (failed, start) = (FailedSignIns::default(), Instant::now());
        let nobody = FailedSignIn::default();
        let (one, other) = (address("192.0.2.1"), address("192.0.2.2"));
        for _ in 0..FAILURES.burst {
            assert_eq!(failed.note(one, &nobody, start), Ok(()));
        }
        assert_eq!(failed.note(one, &nobody, start), Err(FAILURES.interval));
        assert_eq!(failed.note(other, &nobody, start), Ok(()));
        let later = start + FAILURES.interval;
        assert_eq!(failed.note(one, &nobody, later), Ok(()), "one in each interval");
        assert!(failed.note(one, &nobody, later).is_err());
        let much_later = start + FAILURES.interval * 2 * FAILURES.burst;
        for _ in 0..FAILURES.burst {
            assert_eq!(failed.note(one, &nobody, much_later), Ok(()));
        }
    }

    #[test]
    fn failures_for_one_account_wait_wherever_they_come_from() {
        let (failed, start) = (FailedSignIns::default(), Instant::now());
        for host in 0..FAILURES.burst {
            let from = address(&format!("192.0.2.{host}"));
            assert_eq!(failed.note(from, &of("ann"), start), Ok(()));
        }
        assert!(failed.note(address("198.51.100.7"), &of("ann"), start).is_err());
        assert_eq!(failed.note(address("198.51.100.7"), &of("bob"), start), Ok(()));
    }

    #[test]
    fn network_of_version_6_counts_as_one_address() {
        let (failed, start) = (FailedSignIns::default(), Instant::now());
        let nobody = FailedSignIn::default();
        for host in 0..FAILURES.burst {
            let from = address(&format!("2001:db8:1:2::{host:x}"));
            assert_eq!(failed.note(from, &nobody, start), Ok(()));
        }
        assert!(failed.note(address("2001:db8:1:2:ffff::1"), &nobody, start).is_err());
        assert_eq!(failed.note(address("2001:db8:1:3::1"), &nobody, start), Ok(()));
        // The same machine by its address of version 4.
        let mapped = network(address("::ffff:192.0.2.1"));
        assert_eq!(mapped, address("192.0.2.1"));
    }

    #[test]
    fn browsers_of_one_address_are_sent_to_the_provider_at_a_rate() {
        let (failed, start) = (FailedSignIns::default(), Instant::now());
        let from = address("192.0.2.1");
        let sent = (0..1_000).filter(|_| failed.note_sign_on(from, start).is_ok()).count();
        assert_eq!(sent, SIGN_ONS.burst as usize);
        assert_eq!(failed.note(from, &FailedSignIn::default(), start), Ok(()), "no failure");
    }
}
