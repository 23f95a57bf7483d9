//! The script that a new machine runs at its first start: it installs the program where the site says how, writes the join file
//! that is good once, and has systemd keep the agent running.

use super::super::source::{CreateOrder, SourceError};
use model::cloud_source::CloudConfig;
use model::shell::quoted;

/// The most bytes of user data that EC2 takes.
const BYTES_MAX: usize = 16 << 10;

/// The line that ends the join file in the script: JSON has none like it.
const END: &str = "END-OF-JOIN-FILE";

/// What the agent's service is as the unit of the packages has it, without a file: the machine is not kept.
const PROPERTIES: [&str; 7] = [
    "StartLimitIntervalSec=0",
    "Restart=on-failure",
    "RestartSec=2",
    "KillMode=process",
    "Delegate=yes",
    "LimitNOFILE=524288",
    "TasksMax=infinity",
];

/// The script for a machine of this order. `spot`: whose metadata service tells that the machine will be taken back.
pub fn script(
    cloud: &CloudConfig,
    order: &CreateOrder,
    spot: Option<&str>,
) -> Result<String, SourceError> {
    let join = serde_json::to_string(&order.join)
        .map_err(|e| SourceError::refused(format!("the join file: {e}")))?;
    let mut agent = format!("agent --join \"$folder/join\" --node {}", quoted(&order.node));
    // A node that slurm.conf declares is what that says.
    if !order.conf.is_empty() {
        agent.push_str(&format!(" --dynamic --conf {}", quoted(&order.conf)));
    }
    if let Some(kind) = spot.filter(|_| order.offer.spot) {
        agent.push_str(&format!(" --spot {kind}"));
        if let Some(address) = &cloud.metadata {
            agent.push_str(&format!(" --metadata {}", quoted(address)));
        }
    }
    let properties: String = PROPERTIES.iter().map(|of| format!(" --property={of}")).collect();
    let install = cloud.install.trim_end();
    let text = format!(
        "#!/bin/sh\n\
         # Makes this machine the node {} of cluster {}.\n\
         set -eu\n\
         {install}\n\
         sluice=$(command -v sluice) || {{ echo 'sluice is not installed on this image' >&2; exit 1; }}\n\
         folder=$(mktemp -d)\n\
         cat >\"$folder/join\" <<'{END}'\n{join}\n{END}\n\
         exec systemd-run --unit=sluice-agent --service-type=exec{properties} -- \"$sluice\" {agent}\n",
        order.node, order.join.cluster
    );
    if text.len() > BYTES_MAX {
        let why = format!("user data of {} bytes: expected at most {BYTES_MAX}", text.len());
        return Err(SourceError::refused(why));
    }
    Ok(text)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use model::amount::Bytes;
    use model::machine::Offer;
    use model::price::Price;
    use wire::link::JoinFile;

    /// An order as the driver makes it.
    pub fn order(id: &str, region: &str, spot: bool) -> CreateOrder {
        let offer = Offer {
            id: id.to_owned(),
            cpus: 2,
            memory: Bytes::from_gib(1),
            disk: Bytes(0),
            gpus: None,
            region: region.to_owned(),
            price: Price::default(),
            spot,
        };
        let join = JoinFile {
            version: 1,
            servers: vec!["head:6821".into()],
            authority: "PEM".into(),
            token: "once".into(),
            nodes: Vec::new(),
            pattern: Some("ec2-1".into()),
            cluster: "lab".into(),
        };
        let (node, conf) = ("ec2-1".to_owned(), "CPUs=2 Feature=it's".to_owned());
        let (token, options) = ("1-ab".to_owned(), Default::default());
        let (zone, pod, registry_auth) = (None, None, None);
        CreateOrder { token, offer, node, conf, join, zone, options, pod, registry_auth }
    }

    #[test]
    fn script_installs_and_starts_the_agent_with_its_own_join_file() {
        let install = "apt install sluice\n".to_owned();
        let cloud = CloudConfig { install, ..CloudConfig::default() };
        let text = script(&cloud, &order("t3.micro", "r", false), Some("aws")).expect("it fits");
        assert!(text.starts_with("#!/bin/sh\n"), "{text}");
        assert!(text.contains("\napt install sluice\n"), "{text}");
        assert!(text.contains("\"token\":\"once\""), "{text}");
        let agent = r#""$sluice" agent --join "$folder/join" --node 'ec2-1' --dynamic --conf"#;
        assert!(text.contains(agent), "{text}");
        assert!(!text.contains("--spot"), "{text}");
        let cloud = CloudConfig { metadata: Some("http://here".into()), ..CloudConfig::default() };
        let text = script(&cloud, &order("t3.micro", "r", true), Some("aws")).expect("it fits");
        assert!(text.trim_end().ends_with("--spot aws --metadata 'http://here'"), "{text}");
        let declared = CreateOrder { conf: String::new(), ..order("t3.micro", "r", false) };
        let text = script(&cloud, &declared, None).expect("it fits");
        assert!(!text.contains("--dynamic") && !text.contains("--conf"), "{text}");
        let install = "#".repeat(BYTES_MAX);
        let cloud = CloudConfig { install, ..CloudConfig::default() };
        assert!(script(&cloud, &order("t3.micro", "r", false), None).is_err());
    }
}
