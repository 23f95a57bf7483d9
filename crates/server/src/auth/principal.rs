//! The principal behind a request: by the kernel's peer credentials on the socket, by a token over HTTP.

use cluster::token::UserToken;
use model::principal::{Principal, Role};
use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use std::ffi::CString;

/// The user with this uid, as the machine's user database knows it. A user who runs the server as
/// themselves is its administrator; a server that gave up root runs under a uid that no client has.
pub fn of_uid(uid: u32, gid: u32) -> Principal {
    with_own_role(look_up(uid, gid))
}

/// The same, of a user who has an account here: `None` also where the database does not answer.
pub fn with_account(uid: u32, gid: u32) -> Option<Principal> {
    User::from_uid(Uid::from_raw(uid)).ok().flatten()?;
    Some(of_uid(uid, gid)).filter(|who| who.uid == uid)
}

/// A user who runs the server as themselves is its administrator.
pub fn with_own_role(mut principal: Principal) -> Principal {
    if nix::unistd::geteuid().as_raw() == principal.uid {
        principal.role = Role::Admin;
    }
    principal
}

fn look_up(uid: u32, gid: u32) -> Principal {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => of_user(&user),
        _ => Principal {
            name: uid.to_string(),
            uid,
            gid,
            group: group_name(gid),
            groups: vec![gid],
            role: Role::User,
            token_limit: None,
        },
    }
}

/// The user of this name, if there is one; `None` also where the database does not answer.
pub fn of_name(name: &str) -> Option<Principal> {
    find_name(name).ok().flatten()
}

/// The user of this name; the error where the database does not answer.
pub fn find_name(name: &str) -> nix::Result<Option<Principal>> {
    Ok(User::from_name(name)?.map(|user| of_user(&user)))
}

/// The same with the role of whom the server runs as.
pub fn find_with_own_role(name: &str) -> nix::Result<Option<Principal>> {
    Ok(find_name(name)?.map(with_own_role))
}

fn of_user(user: &User) -> Principal {
    let groups = CString::new(user.name.as_str())
        .ok()
        .and_then(|name| getgrouplist(&name, user.gid).ok())
        .unwrap_or_else(|| vec![user.gid]);
    Principal {
        name: user.name.clone(),
        uid: user.uid.as_raw(),
        gid: user.gid.as_raw(),
        group: group_name(user.gid.as_raw()),
        groups: groups.into_iter().map(Gid::as_raw).collect(),
        role: Role::User,
        token_limit: None,
    }
}

fn group_name(gid: u32) -> String {
    match Group::from_gid(Gid::from_raw(gid)) {
        Ok(Some(group)) => group.name,
        _ => gid.to_string(),
    }
}

/// What a token says of who has it, without what is of the token itself.
pub struct TokenHolder {
    pub user: String,
    pub limit: Option<Role>,
    is_admin_token: bool,
}

impl TokenHolder {
    pub fn of(token: &UserToken) -> Self {
        let is_admin_token = token.is_admin_token();
        Self { user: token.user().to_owned(), limit: token.limit, is_admin_token }
    }

    /// Whom the token stands for; `None` if there is no such user. A token limits what its user may do and gives nothing: who loses a
    /// role loses it with every token at once. The administrator's own token alone is an administrator's whoever its user is. `find`
    /// says who has a name (`find_with_own_role`).
    pub fn principal(&self, find: impl FnOnce(&str) -> Option<Principal>) -> Option<Principal> {
        let mut principal = match self.user.as_str() {
            ROOT => server_principal(),
            name => find(name)?,
        };
        if self.is_admin_token {
            principal.role = Role::Admin;
        }
        principal.token_limit = Some(self.limit.unwrap_or(Role::Admin));
        Some(principal)
    }
}

/// Whom a token stands for.
pub fn of_token(
    token: &UserToken,
    find: impl FnOnce(&str) -> Option<Principal>,
) -> Option<Principal> {
    TokenHolder::of(token).principal(find)
}

/// The user who is known without a database.
pub const ROOT: &str = "root";

/// The server's own commands run under this principal.
pub fn server_principal() -> Principal {
    Principal {
        name: ROOT.into(),
        uid: 0,
        gid: 0,
        group: "root".into(),
        groups: Vec::new(),
        role: Role::Admin,
        token_limit: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::token::ADMIN_TOKEN;

    fn token(name: &str, unix_user: Option<&str>, role: Role) -> UserToken {
        let unix_user = unix_user.map(str::to_owned);
        UserToken { name: name.into(), unix_user, role, ..Default::default() }
    }

    #[test]
    fn token_stands_for_its_unix_user_and_gives_no_role() {
        let root = of_token(&token("ops", Some("root"), Role::User), of_name).expect("root");
        assert_eq!((root.uid, root.role), (0, Role::Admin));
        let own = of_token(&token("root", None, Role::User), |_| None);
        assert_eq!(own.expect("root by its own name").uid, 0);
        let nobody = of_name("nobody").expect("every machine has nobody");
        for role in Role::ALL {
            let known = of_token(&token("nobody", None, role), of_name).expect("nobody");
            assert_eq!((known.uid, known.role), (nobody.uid, Role::User), "{role:?}");
        }
        let admin = UserToken {
            token_name: ADMIN_TOKEN.into(),
            ..token("admin", Some("nobody"), Role::Admin)
        };
        assert_eq!(of_token(&admin, of_name).expect("nobody").role, Role::Admin);
    }

    #[test]
    fn token_of_whom_the_server_runs_as_is_an_administrators() {
        let own = of_uid(nix::unistd::geteuid().as_raw(), 0).name;
        let find = |name: &str| find_with_own_role(name).ok().flatten();
        let known = of_token(&token(&own, None, Role::User), find).expect("this test's user");
        assert_eq!((known.uid, known.role), (nix::unistd::geteuid().as_raw(), Role::Admin));
    }

    #[test]
    fn token_of_an_unknown_user_stands_for_nobody() {
        assert!(of_token(&token("no-such-user-here", None, Role::Admin), of_name).is_none());
    }

    #[test]
    fn uid_without_a_name_is_known_by_its_number() {
        let unknown = look_up(3_999_999_999, 3_999_999_998);
        assert_eq!((&*unknown.name, &*unknown.group), ("3999999999", "3999999998"));
        assert_eq!(unknown.role, Role::User);
    }
}
