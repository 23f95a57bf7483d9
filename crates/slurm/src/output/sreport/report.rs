//! The reports of `sreport`, by type and name.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    ClusterUtilization,
    AccountUtilizationByUser,
    UserUtilizationByAccount,
    UserUtilizationByWckey,
    WckeyUtilizationByUser,
    SizesByAccount,
    SizesByAccountAndWckey,
    SizesByWckey,
    TopUsage,
}

/// Type, name, and report. A name may be cut where it stays clear.
#[rustfmt::skip]
const REPORTS: [(&str, &str, Report); 9] = [
    ("cluster", "accountutilizationbyuser", Report::AccountUtilizationByUser),
    ("cluster", "userutilizationbyaccount", Report::UserUtilizationByAccount),
    ("cluster", "userutilizationbywckey", Report::UserUtilizationByWckey),
    ("cluster", "utilization", Report::ClusterUtilization),
    ("cluster", "wckeyutilizationbyuser", Report::WckeyUtilizationByUser),
    ("job", "sizesbyaccount", Report::SizesByAccount),
    ("job", "sizesbyaccountandwckey", Report::SizesByAccountAndWckey),
    ("job", "sizesbywckey", Report::SizesByWckey),
    ("user", "topusage", Report::TopUsage),
];

impl Report {
    /// Reads `cluster utilization`, in any case, or beginnings of both words. The error names what there is.
    pub fn parse(kind: &str, name: &str) -> Result<Self, String> {
        let (kind, name) = (kind.to_ascii_lowercase(), name.to_ascii_lowercase());
        let begins = |word: &str, known: &str| !word.is_empty() && known.starts_with(word);
        if begins(&kind, "reservation") {
            return Err("reservations are not in the books, so there is no report on them".into());
        }
        let of_kind = || REPORTS.iter().filter(|row| begins(&kind, row.0));
        if of_kind().next().is_none() {
            return Err(format!("Not valid report {kind}: expected cluster, job or user"));
        }
        let exact = of_kind().find(|row| row.1 == name);
        // Where several names begin so, the first is meant.
        let found = exact.or_else(|| of_kind().find(|row| begins(&name, row.1)));
        found.map(|row| row.2).ok_or_else(|| {
            let names: Vec<&str> = of_kind().map(|row| row.1).collect();
            format!("Not valid report {name}: expected {}", names.join(", "))
        })
    }

    pub fn is_by_size(self) -> bool {
        matches!(self, Self::SizesByAccount | Self::SizesByAccountAndWckey | Self::SizesByWckey)
    }

    pub(super) fn title(self, top: usize) -> String {
        match self {
            Self::ClusterUtilization => "Cluster Utilization".to_owned(),
            Self::AccountUtilizationByUser => "Cluster/Account/User Utilization".to_owned(),
            Self::UserUtilizationByAccount => "Cluster/User/Account Utilization".to_owned(),
            Self::UserUtilizationByWckey => "Cluster/User/WCKey Utilization".to_owned(),
            Self::WckeyUtilizationByUser => "Cluster/WCKey/User Utilization".to_owned(),
            Self::SizesByAccount => "Job Sizes".to_owned(),
            Self::SizesByAccountAndWckey => "Job Sizes by Account and WCKey".to_owned(),
            Self::SizesByWckey => "Job Sizes by WCKey".to_owned(),
            Self::TopUsage => format!("Top {top} Users"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_named_in_any_case_and_by_their_beginnings() {
        let table = [
            ("cluster", "Utilization", Report::ClusterUtilization),
            ("cluster", "ut", Report::ClusterUtilization),
            ("Cluster", "AccountUtilizationByUser", Report::AccountUtilizationByUser),
            ("cl", "UserUtilizationByA", Report::UserUtilizationByAccount),
            ("cluster", "UserUtilizationByWckey", Report::UserUtilizationByWckey),
            ("user", "TopUsage", Report::TopUsage),
            ("user", "top", Report::TopUsage),
            ("job", "SizesByAccount", Report::SizesByAccount),
            ("job", "SizesByAccountAndWckey", Report::SizesByAccountAndWckey),
            ("job", "sizes", Report::SizesByAccount),
        ];
        for (kind, name, report) in table {
            assert_eq!(Report::parse(kind, name), Ok(report), "{kind} {name}");
        }
        for (kind, name) in [("nothing", "top"), ("user", "bottom"), ("reservation", "util")] {
            assert!(Report::parse(kind, name).is_err(), "{kind} {name}");
        }
    }
}
