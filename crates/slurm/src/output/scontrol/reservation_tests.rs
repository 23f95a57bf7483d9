//! What a real Slurm 22.05 printed for the same reservations.

use super::*;
use crate::output::sinfo::reservations;
use jiff::tz::TimeZone;
use model::partition::Access;
use model::reservation::{Reservation, ReservationFlag as Flag};
use model::time::Timestamp;

fn maint() -> ReservationView {
    let start = "2026-11-15T01:48:39Z".parse::<jiff::Timestamp>().expect("a time").as_second();
    ReservationView {
        reservation: Reservation {
            name: "maint".into(),
            start: Timestamp::from_secs(start),
            end: Timestamp::from_secs(start + 3_600),
            nodes: vec!["node2".into()],
            users: Some(Access::Only(vec!["root".into()])),
            flags: [Flag::Maint, Flag::SpecNodes].into(),
            ..Reservation::default()
        },
        cores: 32,
        cpus: 32,
        active: false,
    }
}

fn licence() -> ReservationView {
    let mut view = maint();
    view.reservation.name = "lic".into();
    view.reservation.nodes.clear();
    view.reservation.users = Some(Access::Except(vec!["alice".into(), "bob".into()]));
    view.reservation.flags = [Flag::AnyNodes].into();
    view.reservation.licenses = vec![("matlab".into(), 1)];
    view.reservation.max_start_delay_s = Some(600);
    (view.cores, view.cpus, view.active) = (0, 0, true);
    view
}

fn shown(view: &ReservationView, oneliner: bool) -> String {
    let mut text = String::new();
    let utc = TimeZone::UTC;
    let moment = Moment::at(view.reservation.start, &utc);
    push(&mut text, view, moment, Options { oneliner, details: false });
    text
}

#[test]
fn a_reservation_is_shown_as_slurm_shows_it() {
    let whole = "\
ReservationName=maint StartTime=2026-11-15T01:48:39 EndTime=2026-11-15T02:48:39 Duration=01:00:00
   Nodes=node2 NodeCnt=1 CoreCnt=32 Features=(null) PartitionName=(null) Flags=MAINT,SPEC_NODES
   TRES=cpu=32
   Users=root Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null) Watts=n/a
   MaxStartDelay=(null)

";
    assert_eq!(shown(&maint(), false), whole);
    let line = "ReservationName=lic StartTime=2026-11-15T01:48:39 EndTime=2026-11-15T02:48:39 Duration=01:00:00 Nodes=(null) NodeCnt=0 CoreCnt=0 Features=(null) PartitionName=(null) Flags=ANY_NODES TRES=(null) Users=-alice,-bob Groups=(null) Accounts=(null) Licenses=matlab:1 State=ACTIVE BurstBuffer=(null) Watts=n/a MaxStartDelay=00:10:00\n";
    assert_eq!(shown(&licence(), true), line);
}

#[test]
fn sinfo_widens_the_column_to_the_longest_name() {
    let utc = TimeZone::UTC;
    let moment = Moment::at(Timestamp::from_secs(0), &utc);
    let listing = |views: &[ReservationView], header| {
        let mut text = String::new();
        reservations::push(&mut text, views, moment, header);
        text
    };
    let short = "\
RESV_NAME     STATE           START_TIME             END_TIME     DURATION  NODELIST
maint      INACTIVE  2026-11-15T01:48:39  2026-11-15T02:48:39     01:00:00  node2
lic          ACTIVE  2026-11-15T01:48:39  2026-11-15T02:48:39     01:00:00  (null)
";
    assert_eq!(listing(&[maint(), licence()], true), short);
    let mut long = maint();
    long.reservation.name = "a_very_long_reservation_name".into();
    long.active = true;
    let wide = "\
RESV_NAME                        STATE           START_TIME             END_TIME     DURATION  NODELIST
a_very_long_reservation_name    ACTIVE  2026-11-15T01:48:39  2026-11-15T02:48:39     01:00:00  node2
";
    assert_eq!(listing(&[long], true), wide);
    assert_eq!(listing(&[maint()], false).lines().count(), 1);
}
