//! The kernel's lists of TCP sockets, which begin with those that listen: who takes the connections to an address. The caller opens the
//! lists.

use std::io::{self, BufRead, ErrorKind};
use std::net::{IpAddr, SocketAddr};

/// The lists of this process's network, of IPv4 and of IPv6.
const LISTS: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// Sockets at one address and port. Those at others have no bound: anybody may open many, and they count against nobody else's.
const LISTENERS_MAX: usize = 8192;
/// The state of a socket that listens.
const LISTENS: &str = "0A";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListeningSocket {
    /// Whose it is, as the reader of the list sees users.
    pub uid: u32,
    /// No two sockets that are open have the same.
    pub inode: u64,
}

/// The sockets that take the connections to an address of this network. `open` opens a list by its path.
pub fn at<R: BufRead>(
    address: SocketAddr,
    open: impl Fn(&'static str) -> io::Result<R>,
) -> io::Result<Vec<ListeningSocket>> {
    let [v4, v6] = LISTS;
    // A socket of IPv6 has connections of IPv4 where no socket of IPv4 listens.
    if address.is_ipv4() {
        let found = read(open(v4)?, address)?;
        if !found.is_empty() {
            return Ok(found);
        }
    }
    match open(v6) {
        Ok(list) => read(list, address),
        // A kernel without IPv6.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn read(list: impl BufRead, wanted: SocketAddr) -> io::Result<Vec<ListeningSocket>> {
    let mut found = Vec::new();
    for line in list.lines().skip(1) {
        let line = line?;
        let unreadable = || io::Error::new(ErrorKind::InvalidData, "a line of another form");
        let mut words = line.split_ascii_whitespace().skip(1);
        let (address, port) = words.next().and_then(socket_address).ok_or_else(unreadable)?;
        if words.nth(1) != Some(LISTENS) {
            break;
        }
        let uid = words.nth(3).and_then(|uid| uid.parse().ok()).ok_or_else(unreadable)?;
        let inode = words.nth(1).and_then(|inode| inode.parse().ok()).ok_or_else(unreadable)?;
        let address = address.to_canonical();
        if port == wanted.port() && (address == wanted.ip() || address.is_unspecified()) {
            if found.len() >= LISTENERS_MAX {
                return Err(io::Error::new(ErrorKind::InvalidData, "too many sockets listen there"));
            }
            found.push(ListeningSocket { uid, inode });
        }
    }
    Ok(found)
}

/// An address and a port as the kernel writes them: words of 32 bits in the machine's order of bytes, then the port.
fn socket_address(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    let word = |at: usize| {
        let digits = address.get(8 * at..8 * at + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    let address = match address.len() {
        8 => IpAddr::from(word(0)?),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            IpAddr::from(<[u8; 16]>::try_from(words.concat()).ok()?)
        }
        _ => return None,
    };
    Some((address, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

    /// A list of the kernel's with these sockets: address and port, state, user. Their inodes are those of the users and a hundred.
    fn list(sockets: &[(&str, &str, u64)]) -> String {
        let line = |(at, state, uid): &(&str, &str, u64)| {
            let inode = uid + 100;
            format!(
                "   0: {at} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 {uid:5}        0 {inode} 1 0\n"
            )
        };
        HEAD.to_owned() + &sockets.iter().map(line).collect::<String>()
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn connections_to_an_address_are_taken_by_its_own_and_by_wildcard_sockets() {
        let v6 = |last: &str| format!("0000000000000000{last}:0050");
        let (any6, own6, mapped) =
            (v6("0000000000000000"), v6("0000000001000000"), v6("FFFF00000100007F"));
        let (any6, own6, mapped) = (any6.as_str(), own6.as_str(), mapped.as_str());
        for (at, of_v4, of_v6, expected) in [
            ("127.0.0.1:80", vec![], vec![], vec![]),
            ("127.0.0.1:80", vec![("0100007F:0051", "0A", 7)], vec![], vec![]),
            ("127.0.0.1:80", vec![("0700000A:0050", "0A", 7)], vec![], vec![]),
            ("127.0.0.1:80", vec![("0100007F:0050", "0A", 7)], vec![(any6, "0A", 8)], vec![7]),
            (
                "127.0.0.1:80",
                vec![("00000000:0050", "0A", 7), ("0100007F:0050", "0A", 8)],
                vec![],
                vec![7, 8],
            ),
            ("127.0.0.1:80", vec![], vec![(any6, "0A", 8), (own6, "0A", 9)], vec![8]),
            ("127.0.0.1:80", vec![], vec![(mapped, "0A", 8)], vec![8]),
            ("[::1]:80", vec![("00000000:0050", "0A", 7)], vec![(own6, "0A", 8)], vec![8]),
            ("[::1]:80", vec![("00000000:0050", "0A", 7)], vec![(any6, "0A", 8)], vec![8]),
            // Those that do not listen come last, and nothing of them is looked at.
            (
                "127.0.0.1:80",
                vec![("0100007F:0051", "01", 8), ("0100007F:0050", "0A", 7)],
                vec![],
                vec![],
            ),
        ] {
            let lists = [list(&of_v4), list(&of_v6)];
            let open = |path: &str| Ok(lists[usize::from(path == LISTS[1])].as_bytes());
            let found = super::at(at.parse().expect("an address"), open).expect("lists");
            let uids: Vec<u32> = found.iter().map(|one| one.uid).collect();
            assert_eq!(uids, expected, "{at} {of_v4:?} {of_v6:?}");
            assert!(found.iter().all(|one| one.inode == u64::from(one.uid) + 100), "{found:?}");
        }
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn sockets_at_other_ports_have_no_bound_and_those_at_the_address_have_one() {
        let at = |others: usize, own: usize| {
            let mut sockets = vec![("0100007F:0051", "0A", 8); others];
            sockets.extend(std::iter::repeat_n(("0100007F:0050", "0A", 7), own));
            let lists = [list(&sockets), list(&[])];
            let open = |path: &str| Ok(lists[usize::from(path == LISTS[1])].as_bytes());
            super::at("127.0.0.1:80".parse().expect("an address"), open).map(|found| found.len())
        };
        assert_eq!(at(2 * LISTENERS_MAX, 1).expect("lists"), 1);
        assert_eq!(at(0, LISTENERS_MAX).expect("lists"), LISTENERS_MAX);
        assert!(at(0, LISTENERS_MAX + 1).is_err());
    }

    #[test]
    fn list_of_another_form_is_an_error_and_a_kernel_without_ipv6_is_none() {
        let address: SocketAddr = "127.0.0.1:80".parse().expect("an address");
        let strange = list(&[("0100007F", "0A", 7)]);
        assert!(at(address, |_| Ok(strange.as_bytes())).is_err());
        let open = |path: &str| {
            let is_known = path == LISTS[0];
            if is_known { Ok(HEAD.as_bytes()) } else { Err(io::Error::from(ErrorKind::NotFound)) }
        };
        assert!(at(address, open).expect("a list").is_empty());
    }
}
