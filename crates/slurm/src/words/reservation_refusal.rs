//! The field and the value that a reservation was refused for: Slurm's own sentence names neither.

use model::reason::Refusal;
use model::reservation_request::ReservationRefusal;

/// `None` for a refusal that is about no field of a reservation.
pub fn refused_field(refusal: &Refusal) -> Option<String> {
    let text = match refusal {
        Refusal::Reservation(ReservationRefusal::Time) => {
            "StartTime must not be in the past, and EndTime must be after it".to_owned()
        }
        Refusal::Reservation(ReservationRefusal::Nothing) => {
            "it names nothing to keep: expected Nodes, NodeCnt, CoreCnt or TRES".to_owned()
        }
        Refusal::Reservation(why) => why.to_string(),
        Refusal::InvalidReservation(name) => format!("there is no reservation {name}"),
        Refusal::UnknownPartition(name) => {
            format!("PartitionName={name}: there is no such partition")
        }
        Refusal::UnknownNode(names) => format!(
            "Nodes={names}: there is no such node, or it is named with a flag that replaces nodes"
        ),
        Refusal::UnknownFeature(text) => format!("Features={text}: not features that nodes have"),
        Refusal::UnknownGres(name) => format!("TRES=gres/{name}: no node has it"),
        Refusal::UnknownLicense(name) => {
            format!("Licenses={name}: there is no such licence, or not so many are left")
        }
        Refusal::InvalidAccount(Some(name)) => format!("Accounts={name}: there is no such account"),
        Refusal::InvalidAccount(None) => {
            "Accounts: names with - before them and names without it do not go together".to_owned()
        }
        _ => return None,
    };
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_reservation_has_its_field_and_value() {
        let table = [
            (Refusal::UnknownNode("n9".into()), "Nodes=n9: "),
            (Refusal::UnknownPartition("x".into()), "PartitionName=x: "),
            (Refusal::InvalidAccount(Some("math".into())), "Accounts=math: "),
            (Refusal::Reservation(ReservationRefusal::User("ada".into())), "user ada "),
            (Refusal::Reservation(ReservationRefusal::Time), "StartTime "),
        ];
        for (refusal, words) in table {
            let said = refused_field(&refusal).expect("a field");
            assert!(said.starts_with(words), "{said}");
        }
        assert_eq!(refused_field(&Refusal::AccessDenied), None);
    }
}
