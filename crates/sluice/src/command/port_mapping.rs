//! Ports of a job on this machine, as `sluice port` and `sluice attach -p` name them.

use super::verb::VerbError;

/// The address of this machine on which a job's ports listen.
pub const LOOPBACK: &str = "127.0.0.1";

/// The port of this machine and the job's, of each mapping.
pub fn parse_all(said: &[String]) -> Result<Vec<(u16, u16)>, VerbError> {
    said.iter().map(|one| parse(one)).collect()
}

fn parse(said: &str) -> Result<(u16, u16), VerbError> {
    let (local, port) = said.split_once(':').unwrap_or((said, said));
    match (local.parse(), port.parse()) {
        (Ok(local), Ok(port)) if local > 0 && port > 0 => Ok((local, port)),
        _ => {
            let text = format!("port {said:?}: expected PORT or LOCAL:PORT, from 1 to 65535");
            Err(VerbError::Message(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_one_number_or_two() {
        assert_eq!(parse("8080").ok(), Some((8080, 8080)));
        assert_eq!(parse("80:8080").ok(), Some((80, 8080)));
        for bad in ["", "0", "a", "80:", ":80", "1:2:3", "65536", "80:0"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
