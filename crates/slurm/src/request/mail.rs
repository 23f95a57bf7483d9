//! The mail that a job asks for.

use crate::option::JobOptions;
use crate::option::value::MAIL_ALL;
use model::mail::{Mail, MailType, check_address};

/// Who gets mail of what. An address that is none stops no job, as in Slurm: the job has no mail, and a note says so.
pub(super) fn of(options: &JobOptions) -> Option<Mail> {
    let types = options.mail_types.clone();
    let has_mail = !types.is_empty() && fault(options).is_none();
    has_mail.then(|| Mail { types, user: options.mail_user.clone() })
}

/// The lines for mail that will not come.
pub(super) fn notes(options: &JobOptions) -> impl Iterator<Item = String> {
    let unsent = fault(options).filter(|_| !options.mail_types.is_empty());
    let unsent = unsent.map(|fault| format!("note: the job has no mail: {fault}"));
    stage_out_note(options).into_iter().chain(unsent)
}

/// Why the address is none.
fn fault(options: &JobOptions) -> Option<String> {
    check_address(options.mail_user.as_deref()?).err()
}

/// A line for mail about burst buffers, where it was asked for by its name and not by `ALL`.
fn stage_out_note(options: &JobOptions) -> Option<String> {
    let asked = |kind: &MailType| options.mail_types.contains(kind);
    let is_named = asked(&MailType::StageOut) && !MailType::ALL[..MAIL_ALL].iter().all(asked);
    is_named.then(|| {
        "note: --mail-type=STAGE_OUT has no meaning here: there are no burst buffers".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_that_is_none_has_no_mail_and_a_note_says_so() {
        let with = |user: &str, types: &[MailType]| JobOptions {
            mail_user: Some(user.to_owned()),
            mail_types: types.to_vec(),
            ..JobOptions::default()
        };
        let good = with("ann@site.org", &[MailType::End]);
        assert!(of(&good).is_some() && notes(&good).next().is_none());
        for bad in ["<your email>", "$USER@site.org", "-Sx", "|id"] {
            let bad = with(bad, &[MailType::End]);
            assert_eq!(of(&bad), None);
            let told: Vec<String> = notes(&bad).collect();
            assert_eq!(told.len(), 1, "{told:?}");
            assert!(told[0].starts_with("note: the job has no mail: mail address "), "{told:?}");
        }
        assert!(notes(&with("<your email>", &[])).next().is_none(), "no mail was asked for");
    }
}
