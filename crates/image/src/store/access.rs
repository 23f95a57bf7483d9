//! Who may use a layer that is in the store. Its digest is no secret: an image that merely names it gets it only for who may
//! have it, or for who brings its bytes.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Store;
use super::folders::write_record;
use crate::digest::Digest;
use crate::error::Result;

/// Users and repositories that are kept of a layer; who is not among them brings it again.
const HOLDERS_MAX: usize = 4096;

/// Whom a layer is given to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// A registry gives it to who does not sign in; or it is of a time in which this was not kept.
    #[default]
    Everybody,
    /// To users who have brought it, and to who is given an image by a repository that it came from.
    Holders { users: BTreeSet<u32>, repositories: BTreeSet<String> },
}

/// Who wants an image, and what its manifest came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requester {
    pub user: u32,
    /// The repository that has just given the manifest, with its registry; `None` for a file of the node.
    pub repository: Option<String>,
    /// It gives the image to who does not sign in.
    pub is_public: bool,
}

impl Requester {
    /// Names the download of a blob. Each repository has its own: who downloads from a slow one keeps nobody else from the same
    /// blob. One that took a sign-in is taken up by its own user alone: the bytes of others' show nothing.
    pub fn download_key(&self, blob: &Digest) -> Digest {
        let from = self.repository.as_deref().unwrap_or_default();
        let of_user = if self.is_public { String::new() } else { format!(" for {}", self.user) };
        Digest::of(format!("{blob} of {from}{of_user}").as_bytes())
    }
}

impl Access {
    pub fn of(requester: &Requester) -> Self {
        if requester.is_public {
            return Access::Everybody;
        }
        Access::Holders {
            users: [requester.user].into(),
            repositories: requester.repository.iter().cloned().collect(),
        }
    }

    fn admits(&self, requester: &Requester) -> bool {
        match self {
            Access::Everybody => true,
            // By an image that is everybody's, others would get it too.
            Access::Holders { .. } if requester.is_public => false,
            Access::Holders { users, repositories } => {
                let from = requester.repository.as_ref();
                users.contains(&requester.user)
                    || from.is_some_and(|one| repositories.contains(one))
            }
        }
    }

    fn admit(&mut self, requester: &Requester) {
        if requester.is_public {
            *self = Access::Everybody;
        }
        if let Access::Holders { users, repositories } = self {
            if users.len() < HOLDERS_MAX {
                users.insert(requester.user);
            }
            if repositories.len() < HOLDERS_MAX {
                repositories.extend(requester.repository.clone());
            }
        }
    }
}

impl Store {
    /// Whether the layer is there for the requester, who need not bring it.
    pub(crate) fn admits(&self, diff_id: &Digest, requester: &Requester) -> bool {
        self.layer_record(diff_id).is_some_and(|record| record.access.admits(requester))
    }

    /// The same for every layer of an image.
    pub(crate) fn admits_to_all(&self, diff_ids: &[Digest], requester: &Requester) -> bool {
        diff_ids.iter().all(|diff_id| self.admits(diff_id, requester))
    }

    /// Notes that the requester has brought the layer, which the caller holds.
    pub(crate) fn admit(&self, diff_id: &Digest, requester: &Requester) -> Result<()> {
        match self.layer_record(diff_id) {
            Some(mut record) if !record.access.admits(requester) => {
                record.access.admit(requester);
                write_record(&self.folders.layer(diff_id).join("layer.json"), &record)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_download_is_shared_by_who_is_given_the_same_repository() {
        let key = |user, repository: &str, is_public| {
            let repository = Some(repository.to_owned());
            Requester { user, repository, is_public }.download_key(&Digest::of(b"blob"))
        };
        assert_eq!(key(7, "lab/a", true), key(8, "lab/a", true));
        assert_ne!(key(7, "lab/a", true), key(7, "lab/b", true));
        assert_ne!(key(7, "lab/a", false), key(8, "lab/a", false));
        assert_eq!(key(7, "lab/a", false), key(7, "lab/a", false));
    }

    #[test]
    fn a_layer_is_for_who_has_brought_it_and_for_its_repository_until_it_is_everybodys() {
        let requester = |user, repository: Option<&str>, is_public| Requester {
            user,
            repository: repository.map(str::to_owned),
            is_public,
        };
        let mut access = Access::of(&requester(7, Some("lab/a"), false));
        assert!(access.admits(&requester(7, None, false)), "he has it");
        assert!(access.admits(&requester(8, Some("lab/a"), false)), "it is given to him");
        assert!(!access.admits(&requester(8, Some("lab/b"), false)));
        assert!(!access.admits(&requester(8, None, false)));
        assert!(!access.admits(&requester(7, Some("open/c"), true)), "others would follow");
        access.admit(&requester(8, None, false));
        assert!(access.admits(&requester(8, None, false)));
        access.admit(&requester(9, Some("open/c"), true));
        assert_eq!(access, Access::Everybody);
        assert_eq!(Access::of(&requester(9, Some("open/c"), true)), Access::Everybody);
    }
}
