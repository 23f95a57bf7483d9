//! The functions that PAM calls, and the functions of PAM that are used.

use crate::agent_socket;
use crate::namespaces::enter;
use crate::options::{Action, Options};
use crate::verdict::{LoginUser, Verdict, decide};
use libc::{c_char, c_int, c_void};
use nix::unistd::User;
use std::ffi::{CStr, CString};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

const PAM_SUCCESS: c_int = 0;
const PAM_SYSTEM_ERR: c_int = 4;
const PAM_PERM_DENIED: c_int = 6;
const PAM_USER_UNKNOWN: c_int = 10;
const PAM_IGNORE: c_int = 25;
/// The kind of message that a program shows as an error.
const PAM_ERROR_MSG: c_int = 3;
/// Words of one line in the PAM file; more are ignored.
const WORDS_MAX: usize = 64;

type Handle = *mut c_void;

unsafe extern "C" {
    fn pam_get_user(handle: Handle, user: *mut *const c_char, prompt: *const c_char) -> c_int;
    fn pam_syslog(handle: Handle, priority: c_int, format: *const c_char, ...);
    fn pam_prompt(
        handle: Handle,
        style: c_int,
        response: *mut *mut c_char,
        format: *const c_char,
        ...
    ) -> c_int;
}

/// `account`: decides whether the user may log in. The asking process becomes part of the job.
///
/// # Safety
/// Called by PAM, with a handle of its own and `count` words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pam_sm_acct_mgmt(
    handle: Handle,
    _flags: c_int,
    count: c_int,
    words: *const *const c_char,
) -> c_int {
    // SAFETY: as PAM promises.
    unsafe { guarded(handle, count, words) }
}

/// `session`: the same again. With password authentication `account` may have run in a helper of `sshd`; this runs in
/// the process from which the session is forked.
///
/// # Safety
/// As for [`pam_sm_acct_mgmt`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pam_sm_open_session(
    handle: Handle,
    _flags: c_int,
    count: c_int,
    words: *const *const c_char,
) -> c_int {
    // SAFETY: as PAM promises.
    unsafe { guarded(handle, count, words) }
}

/// The session's processes end with it or with the job; there is nothing to undo.
///
/// # Safety
/// Touches nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pam_sm_close_session(
    _handle: Handle,
    _flags: c_int,
    _count: c_int,
    _words: *const *const c_char,
) -> c_int {
    PAM_SUCCESS
}

/// Turns a panic into a refusal: it must not unwind through C.
///
/// # Safety
/// As for [`pam_sm_acct_mgmt`].
unsafe fn guarded(handle: Handle, count: c_int, words: *const *const c_char) -> c_int {
    // SAFETY: as PAM promises.
    let attempt = AssertUnwindSafe(|| unsafe { admit(handle, count, words) });
    catch_unwind(attempt).unwrap_or(PAM_SYSTEM_ERR)
}

/// # Safety
/// As for [`pam_sm_acct_mgmt`].
unsafe fn admit(handle: Handle, count: c_int, words: *const *const c_char) -> c_int {
    // SAFETY: PAM gives as many words as it says, each ended by zero, for as long as this call lasts.
    let words = unsafe { words_of(count, words) };
    let options = Options::parse(words.iter().map(String::as_str));
    let mut name: *const c_char = ptr::null();
    // SAFETY: the handle is PAM's, and the name stays its own.
    if unsafe { pam_get_user(handle, &mut name, ptr::null()) } != PAM_SUCCESS || name.is_null() {
        return PAM_USER_UNKNOWN;
    }
    // SAFETY: PAM's names are ended by zero and live as long as the handle's item is not set anew.
    let name = unsafe { CStr::from_ptr(name) };
    let name = name.to_string_lossy();
    let Ok(Some(entry)) = User::from_name(&name) else { return PAM_USER_UNKNOWN };
    let uid = entry.uid.as_raw();
    let user = LoginUser { name: &name, uid };
    let mut namespaces = Vec::new();
    let verdict = decide(&options, &user, |ask| {
        let (answer, came) = agent_socket::ask(&options.state, ask)?;
        namespaces = came;
        Ok(answer)
    });
    // A login that cannot enter all namespaces is not admitted. Its process is already in the job's group and ends with
    // the job.
    let verdict = match (verdict, enter(&namespaces)) {
        (Verdict::Entered(_), Err(error)) => {
            let why = format!("user {name} (uid={uid}) cannot enter a job's folders: {error}");
            Verdict::Fallback(options.adopt_failure, why)
        }
        (verdict, _) => verdict,
    };
    match verdict {
        Verdict::Ignored => PAM_IGNORE,
        Verdict::Entered(job) => {
            log(handle, libc::LOG_INFO, &format!("user {name} (uid={uid}) enters job {job}"));
            PAM_SUCCESS
        }
        Verdict::Fallback(action, why) => {
            let (code, words) = match action {
                Action::Deny => (PAM_PERM_DENIED, "Access denied"),
                Action::Allow => (PAM_SUCCESS, "Access allowed without a job"),
                Action::Ignore => (PAM_IGNORE, "Left to the next rule"),
            };
            let line = format!("{words}: {why}");
            log(handle, libc::LOG_WARNING, &line);
            if action == Action::Deny {
                show(handle, &line);
            }
            code
        }
    }
}

/// # Safety
/// `words` points to `count` strings, each ended by zero.
unsafe fn words_of(count: c_int, words: *const *const c_char) -> Vec<String> {
    let count = usize::try_from(count).unwrap_or(0).min(WORDS_MAX);
    let text = |index| {
        // SAFETY: as the caller promises.
        unsafe { CStr::from_ptr(*words.add(index)) }.to_string_lossy().into_owned()
    };
    (0..count).map(text).collect()
}

fn log(handle: Handle, priority: c_int, line: &str) {
    if let Ok(line) = CString::new(line) {
        // SAFETY: the format takes one string, and gets one.
        unsafe { pam_syslog(handle, priority, c"%s".as_ptr(), line.as_ptr()) };
    }
}

/// Shows a line to the user. If the program cannot show it, the verdict stays.
fn show(handle: Handle, line: &str) {
    if let Ok(line) = CString::new(line) {
        // SAFETY: as for `log`; no answer is asked for.
        unsafe {
            pam_prompt(handle, PAM_ERROR_MSG, ptr::null_mut(), c"%s".as_ptr(), line.as_ptr())
        };
    }
}
