//! Ports of a job on this machine, as `sluice port` and `sluice attach -p` name them.

use super::verb::VerbError;
use model::port_forward::PortForward;
use std::net::TcpListener;

/// The address of this machine on which a job's ports listen.
pub const LOOPBACK: &str = "127.0.0.1";

/// The port of this machine and the job's, of each mapping.
pub fn parse_all(said: &[String]) -> Result<Vec<(u16, u16)>, VerbError> {
    said.iter().map(|one| parse(one, &[])).collect()
}

/// The same of a run whose configuration names ports: one that is said without a port of this machine gets the
/// configuration's. Without a word, all that the configuration names.
pub fn of_run(said: &[String], named: &[PortForward]) -> Result<Vec<(u16, u16)>, VerbError> {
    if said.is_empty() {
        return named.iter().map(local_of).collect();
    }
    said.iter().map(|one| parse(one, named)).collect()
}

fn parse(said: &str, named: &[PortForward]) -> Result<(u16, u16), VerbError> {
    let (local, port) = match said.split_once(':') {
        Some((local, port)) => (local, port),
        None => {
            let port = said.parse::<u16>().ok();
            match named.iter().find(|known| Some(known.of_run) == port) {
                Some(known) => return local_of(known),
                None => (said, said),
            }
        }
    };
    match (local.parse(), port.parse()) {
        (Ok(local), Ok(port)) if local > 0 && port > 0 => Ok((local, port)),
        _ => {
            let text = format!("port {said:?}: expected PORT or LOCAL:PORT, from 1 to 65535");
            Err(VerbError::Message(text))
        }
    }
}

/// The configuration's port of this machine, or any that is free.
pub fn local_of(port: &PortForward) -> Result<(u16, u16), VerbError> {
    let local = match port.local {
        Some(local) => local,
        None => free_port().map_err(VerbError::file(LOOPBACK))?,
    };
    Ok((local, port.of_run))
}

/// The same at a further attempt of the run. A free port that was found `before` is taken again, unless something listens there
/// now: whoever uses it need not look for another.
pub fn local_again(port: &PortForward, before: Option<u16>) -> Result<(u16, u16), VerbError> {
    match before.filter(|local| port.local.is_none() && refusal(*local).is_none()) {
        Some(local) => Ok((local, port.of_run)),
        None => local_of(port),
    }
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((LOOPBACK, 0))?.local_addr()?.port())
}

/// Why the caller cannot listen there on this machine: something does already, or it is a port for root.
pub fn refusal(local: u16) -> Option<std::io::Error> {
    TcpListener::bind((LOOPBACK, local)).err()
}

/// Refuses ports of which one cannot be had on this machine, before `ssh` does so in its own words. The others are not brought
/// either: whoever names several needs all of them.
pub fn check_free(job: &str, ports: &[(u16, u16)]) -> Result<(), VerbError> {
    let taken = ports.iter().find_map(|(local, port)| Some((local, port, refusal(*local)?)));
    let Some((local, port, why)) = taken else { return Ok(()) };
    Err(VerbError::Message(format!(
        "port {local} of this machine: {why}: `sluice port {job} LOCAL:{port}` brings port {port} of {job} to another"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_one_number_or_two() {
        let parse = |said: &str| parse(said, &[]);
        assert_eq!(parse("8080").ok(), Some((8080, 8080)));
        assert_eq!(parse("80:8080").ok(), Some((80, 8080)));
        for bad in ["", "0", "a", "80:", ":80", "1:2:3", "65536", "80:0"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn port_of_before_is_another_where_something_listens_or_the_configuration_names_one() {
        let any = PortForward { of_run: 80, local: None };
        let listener = TcpListener::bind((LOOPBACK, 0)).expect("a free port");
        let first = listener.local_addr().expect("its address").port();
        let other = local_again(&any, Some(first)).expect("another");
        assert!(other.0 != first && other.1 == 80, "{other:?}");
        let said = PortForward { of_run: 80, local: Some(8080) };
        assert_eq!(local_again(&said, Some(first)).expect("the one"), (8080, 80));
    }

    #[test]
    fn port_of_this_machine_that_is_taken_is_told_with_the_jobs_port() {
        let listener = TcpListener::bind((LOOPBACK, 0)).expect("a free port");
        let taken = listener.local_addr().expect("its address").port();
        // Port 0 is any that is free.
        assert!(check_free("web", &[(0, 80)]).is_ok());
        let told = check_free("web", &[(0, 80), (taken, 9000)]).expect_err("taken").to_string();
        assert!(told.starts_with(&format!("port {taken} of this machine: ")), "{told}");
        assert!(told.ends_with("`sluice port web LOCAL:9000` brings port 9000 of web to another"));
    }

    #[test]
    fn port_without_one_of_this_machine_gets_that_of_the_configuration() {
        let port = |local, of_run| PortForward { of_run, local };
        let named = [port(Some(8080), 80), port(Some(9000), 9000), port(None, 7000)];
        let of = |said: &[&str]| {
            let said: Vec<String> = said.iter().map(|&word| word.to_owned()).collect();
            of_run(&said, &named).expect("ports")
        };
        assert_eq!(of(&["80", "81", "82:80"]), [(8080, 80), (81, 81), (82, 80)]);
        let all = of(&[]);
        assert_eq!(all[..2], [(8080, 80), (9000, 9000)]);
        assert!(all[2].0 > 0 && all[2].1 == 7000, "{all:?}");
    }
}
