//! Disks for volumes behind a provider program: docs/machines.md has the protocol.

use super::answer_bounds::is_name;
use super::program_source::{DiskAnswer, ProgramSource};
use super::source::{AttachOrder, DiskMade, DiskOrder, DiskSource, SourceDisk, SourceError};
use model::amount::Bytes;
use model::price::Price;
use serde_json::{Value, json};

/// The most disks in one answer, and the most device files of one.
const DISKS_MAX: usize = 20_000;
const DEVICES_MAX: usize = 16;

/// The largest disk, a pebibyte.
const SIZE_GB_MAX: u64 = 1 << 20;

fn made(told: DiskAnswer) -> Result<DiskMade, SourceError> {
    let wrong = |what: &str| Err(SourceError::unknown(format!("a volume: {what}")));
    if !is_name(&told.id) || told.zone.as_ref().is_some_and(|zone| !is_name(zone)) {
        return wrong("id and zone: expected 1 to 256 printable characters");
    }
    if told.size_gb.is_some_and(|size| !(1..=SIZE_GB_MAX).contains(&size)) {
        return wrong("size_gb: expected 1 to 1048576");
    }
    let price = told.price.map(Price::from_dollars);
    if price == Some(None) {
        return wrong("price: expected dollars an hour, from 0 to 1000000");
    }
    let size = told.size_gb.map(Bytes::from_gib);
    let (id, zone, price) = (told.id, told.zone, price.flatten());
    Ok(DiskMade { id, zone, size, price, ..DiskMade::default() })
}

fn which(order: &DiskOrder) -> Value {
    json!({"token": order.token, "id": order.id, "region": order.place.region})
}

fn attachment(order: &AttachOrder) -> Value {
    let mut asked = which(&order.disk);
    asked["machine"] = Value::from(order.machine.as_str());
    asked
}

impl DiskSource for ProgramSource {
    fn create_disk(&self, order: &DiskOrder) -> Result<DiskMade, SourceError> {
        let mut asked = which(order);
        asked["name"] = Value::from(order.name.as_str());
        asked["project"] = Value::from(order.project.as_str());
        asked["zone"] = json!(order.place.zone);
        asked["size_gb"] = Value::from(order.size_gb);
        asked["volume_id"] = json!(order.place.existing);
        let told = self.call("volume_create", asked)?.volume;
        let told = told.ok_or_else(|| self.without("volume_create", "volume"))?;
        if told.token != order.token {
            return Err(SourceError::unknown("volume_create: the answer is of another token"));
        }
        made(told)
    }

    fn attach_disk(&self, order: &AttachOrder) -> Result<Vec<String>, SourceError> {
        let devices = self.call("volume_attach", attachment(order))?.devices;
        let devices = devices.ok_or_else(|| self.without("volume_attach", "devices"))?;
        let is_device = |path: &String| path.starts_with("/dev/") && is_name(path);
        if !(1..=DEVICES_MAX).contains(&devices.len()) || !devices.iter().all(is_device) {
            let text = "volume_attach: devices: expected 1 to 16 paths below /dev";
            return Err(SourceError::unknown(text));
        }
        Ok(devices)
    }

    fn detach_disk(&self, order: &AttachOrder) -> Result<(), SourceError> {
        let answer = self.call("volume_detach", attachment(order))?;
        if answer.detached { Ok(()) } else { Err(self.without("volume_detach", "detached")) }
    }

    fn delete_disk(&self, order: &DiskOrder) -> Result<(), SourceError> {
        let answer = self.call("volume_delete", which(order))?;
        if answer.deleted { Ok(()) } else { Err(self.without("volume_delete", "deleted")) }
    }

    fn describe_disks(&self) -> Result<Vec<SourceDisk>, SourceError> {
        let told = self.call("volume_describe", json!({}))?.volumes;
        let told = told.ok_or_else(|| self.without("volume_describe", "volumes"))?;
        let is_wrong = |of: &DiskAnswer| !is_name(&of.token) || !is_name(&of.id);
        if told.len() > DISKS_MAX || told.iter().any(is_wrong) {
            let text = "volume_describe: expected at most 20000 volumes, each with token and id";
            return Err(SourceError::unknown(text));
        }
        Ok(told.into_iter().map(|of| SourceDisk { token: of.token, id: of.id }).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::program_source::tests::source;
    use super::*;
    use model::cloud_volume::CloudPlace;
    use model::machine::FailureKind;

    fn order() -> AttachOrder {
        let place = CloudPlace { region: "eu".into(), ..CloudPlace::default() };
        let (token, name, project) = ("t1".to_owned(), "data".to_owned(), "main".to_owned());
        let id = Some("v-1".to_owned());
        let disk = DiskOrder { token, name, project, place, size_gb: 10, id };
        AttachOrder { disk, machine: "i-1".into() }
    }

    #[test]
    fn program_makes_attaches_detaches_lists_and_deletes_disks() {
        let script = r#"case $request in
            *'"call":"volume_create"'*'"project":"main"'*)
                echo '{"volume":{"token":"t1","id":"v-1","zone":"eu-a","size_gb":16,"price":0.01}}';;
            *'"call":"volume_attach"'*'"machine":"i-1"'*) echo '{"devices":["/dev/vdb"]}';;
            *'"call":"volume_detach"'*) echo '{"detached":true}';;
            *'"call":"volume_delete"'*) echo '{"deleted":true}';;
            *'"call":"volume_describe"'*) echo '{"volumes":[{"token":"t1","id":"v-1"}]}';;
        esac"#;
        let (_dir, source) = source(script);
        let order = order();
        let made = source.create_disk(&order.disk).expect("it is made");
        assert_eq!((made.id.as_str(), made.zone.as_deref()), ("v-1", Some("eu-a")));
        assert_eq!((made.size, made.price), (Some(Bytes::from_gib(16)), Price::from_dollars(0.01)));
        assert_eq!(source.attach_disk(&order).as_deref(), Ok(&["/dev/vdb".to_owned()][..]));
        assert_eq!(source.detach_disk(&order), Ok(()));
        assert_eq!(source.describe_disks().map(|all| all.len()), Ok(1));
        assert_eq!(source.delete_disk(&order.disk), Ok(()));
    }

    const EXAMPLE: &str = include_str!("../../../../examples/local_machines.py");

    #[test]
    fn up_example_program_makes_a_disk_once_lists_and_deletes_it() {
        let (dir, source) =
            source(r#"printf '%s' "$request" | python3 "$(dirname "$0")/example.py""#);
        std::fs::write(dir.path().join("example.py"), EXAMPLE).expect("the example");
        let settings = json!({"sluice": "none", "folder": dir.path().join("made"), "offers": []});
        std::fs::write(dir.path().join("example.json"), settings.to_string()).expect("settings");
        let mut disk = order().disk;
        disk.place.existing = Some("v-9".into());
        let foreign = source.create_disk(&disk).map_err(|error| error.kind);
        assert_eq!(foreign.map(drop), Err(FailureKind::Refused), "none was there before");
        disk.place.existing = None;
        let made = source.create_disk(&disk).expect("it is made");
        assert_eq!((made.id.as_str(), made.size), ("disk-t1", Some(Bytes::from_gib(10))));
        let again = source.create_disk(&disk).expect("it is there");
        assert_eq!(again.id, made.id);
        let listed = source.describe_disks().expect("a list");
        assert_eq!(listed, [SourceDisk { token: "t1".into(), id: "disk-t1".into() }]);
        source.delete_disk(&disk).expect("it is deleted");
        source.delete_disk(&disk).expect("it is gone");
        assert_eq!(source.describe_disks().map(|all| all.len()), Ok(0));
    }

    #[test]
    fn what_a_program_may_not_say_of_a_disk_is_no_answer() {
        for answer in [
            r#"{"volume":{"token":"t2","id":"v"},"devices":[]}"#,
            r#"{"volume":{"token":"t1","id":""},"devices":["/etc/passwd"]}"#,
            r#"{"volume":{"token":"t1","id":"v","price":-1},"devices":["/dev/a\nb"]}"#,
            r#"{"volume":{"token":"t1","id":"v","size_gb":0}}"#,
            r#"{}"#,
        ] {
            let (_dir, source) = source(&format!("echo '{answer}'"));
            let order = order();
            let kinds = [
                source.create_disk(&order.disk).map(drop),
                source.attach_disk(&order).map(drop),
                source.detach_disk(&order),
                source.delete_disk(&order.disk),
            ];
            for said in kinds {
                assert_eq!(said.map_err(|e| e.kind), Err(FailureKind::Unknown), "{answer}");
            }
        }
    }
}
