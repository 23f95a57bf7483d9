//! The principal behind a request: by the kernel's peer credentials on the socket, by a token over HTTP.

use cluster::event::UserToken;
use model::principal::{Principal, Role};
use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use std::ffi::CString;

/// The user with this uid, as the machine's user database knows it. A user who runs the server as
/// themselves is its administrator; a server that gave up root runs under a uid that no client has.
pub fn of_uid(uid: u32, gid: u32) -> Principal {
    let mut principal = look_up(uid, gid);
    if nix::unistd::geteuid().as_raw() == uid {
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
        },
    }
}

/// The user of this name, if there is one.
pub fn of_name(name: &str) -> Option<Principal> {
    User::from_name(name).ok().flatten().map(|user| of_user(&user))
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
    }
}

fn group_name(gid: u32) -> String {
    match Group::from_gid(Gid::from_raw(gid)) {
        Ok(Some(group)) => group.name,
        _ => gid.to_string(),
    }
}

/// Whom a token stands for; `None` if there is no such user.
pub fn of_token(token: &UserToken) -> Option<Principal> {
    let mut principal = match token.unix_user.as_deref().unwrap_or(&token.name) {
        "root" => server_principal(),
        name => of_name(name)?,
    };
    principal.role = principal.role.max(token.role);
    Some(principal)
}

/// The server's own commands run under this principal.
pub fn server_principal() -> Principal {
    Principal {
        name: "root".into(),
        uid: 0,
        gid: 0,
        group: "root".into(),
        groups: Vec::new(),
        role: Role::Admin,
    }
}
