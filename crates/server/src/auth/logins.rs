//! The home folder and the shell of who submits what is made here, as the machine's user database has them. One that was found is good
//! for seconds: a program that submits a thousand runs does not read the database a thousand times.

use nix::unistd::{Uid, User};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a login is not looked up again.
const FRESH: Duration = Duration::from_secs(2);

/// Logins that are remembered. With more, all are let go.
const LOGINS_MAX: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    pub home: String,
    pub shell: String,
}

/// By user id; `None` for one without an account.
#[derive(Default)]
pub struct Logins(Mutex<HashMap<u32, (Instant, Option<Login>)>>);

impl Logins {
    /// The login of a user; `None` where there is no account, or the database does not answer.
    pub fn find(&self, uid: u32) -> Option<Login> {
        self.find_by(uid, look_up)
    }

    fn find_by(&self, uid: u32, look_up: impl FnOnce(u32) -> Option<Login>) -> Option<Login> {
        if let Some((at, login)) = self.known().get(&uid)
            && at.elapsed() < FRESH
        {
            return login.clone();
        }
        // Others are not held up by the database.
        let login = look_up(uid);
        let mut known = self.known();
        if known.len() >= LOGINS_MAX {
            known.clear();
        }
        known.insert(uid, (Instant::now(), login.clone()));
        login
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u32, (Instant, Option<Login>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn look_up(uid: u32) -> Option<Login> {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten()?;
    Some(Login { home: user.dir.display().to_string(), shell: user.shell.display().to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_is_looked_up_once_in_a_while_and_so_many_are_known() {
        let logins = Logins::default();
        let of = |uid: u32| Login { home: format!("/home/{uid}"), shell: "/bin/sh".into() };
        assert_eq!(logins.find_by(1, |uid| Some(of(uid))), Some(of(1)));
        assert_eq!(logins.find_by(1, |_| panic!("it is known")), Some(of(1)));
        assert_eq!(logins.find_by(2, |_| None), None);
        assert_eq!(logins.find_by(2, |_| panic!("it is known")), None);
        for uid in 0..2 * LOGINS_MAX as u32 {
            logins.find_by(uid, |uid| Some(of(uid)));
            assert!(logins.known().len() <= LOGINS_MAX);
        }
    }
}
