//! The kernel's lists of TCP sockets, which begin with those that listen: who takes the connections to an address. The caller opens the
//! lists.

use std::io::{self, BufRead, ErrorKind};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The lists of this process's network, of IPv4 and of IPv6.
const LISTS: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// The addresses of IPv6 that this process's network has.
const V6_ADDRESSES: &str = "/proc/self/net/if_inet6";
/// `::1` as that list begins a line with it.
const V6_LOOPBACK: &str = "00000000000000000000000000000001 ";
/// Sockets at one address and port. Those at others have no bound: anybody may open many, and they count against nobody else's.
const LISTENERS_MAX: usize = 8192;
/// The state of a socket that listens.
const LISTENS: &str = "0A";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListeningSocket {
    /// Where it listens: at one address, or at all of a family.
    pub address: IpAddr,
    /// The owner, by the number that he has in the user namespace of whoever reads the list.
    pub uid: u32,
    /// No two sockets that are open have the same.
    pub inode: u64,
}

/// The sockets that take the connections to an address of this network. `open` opens a list by its path.
///
/// The kernel's lists do not say whether a socket of IPv6 that listens at all addresses has connections of IPv4 too: it counts for IPv4 only
/// where it has no loopback address of its own family. Elsewhere its server is asked for at `[::1]`.
pub fn at<R: BufRead>(
    address: SocketAddr,
    open: impl Fn(&'static str) -> io::Result<R>,
) -> io::Result<Vec<ListeningSocket>> {
    let [v4, v6] = LISTS;
    let (wanted, port) = (address.ip().to_canonical(), address.port());
    // A socket of IPv6 has connections of IPv4 where no socket of IPv4 listens.
    if wanted.is_ipv4() {
        let found = read(open(v4)?, port, |at| takes(at, wanted))?;
        if !found.is_empty() {
            return Ok(found);
        }
    }
    // A kernel without IPv6 has no list.
    let Some(list) = present(open(v6))? else { return Ok(Vec::new()) };
    let counts_for_both = wanted.is_ipv4() && !has_v6_loopback(present(open(V6_ADDRESSES))?)?;
    let any = IpAddr::from(Ipv6Addr::UNSPECIFIED);
    read(list, port, |at| takes(at, wanted) || (counts_for_both && at == any))
}

fn present<R>(opened: io::Result<R>) -> io::Result<Option<R>> {
    match opened {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}

/// Whether a socket at an address has the connections to another of the same family.
pub fn takes(at: IpAddr, wanted: IpAddr) -> bool {
    at == wanted || (at.is_unspecified() && at.is_ipv4() == wanted.is_ipv4())
}

fn has_v6_loopback(addresses: Option<impl BufRead>) -> io::Result<bool> {
    let Some(addresses) = addresses else { return Ok(false) };
    for line in addresses.lines() {
        if line?.starts_with(V6_LOOPBACK) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The sockets of a list that listen at a port, of those whose address is wanted.
fn read(
    list: impl BufRead,
    wanted_port: u16,
    is_wanted: impl Fn(IpAddr) -> bool,
) -> io::Result<Vec<ListeningSocket>> {
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
        if port == wanted_port && is_wanted(address) {
            if found.len() >= LISTENERS_MAX {
                return Err(io::Error::new(
                    ErrorKind::InvalidData,
                    "too many sockets listen there",
                ));
            }
            found.push(ListeningSocket { address, uid, inode });
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

    const ADDRESSES: &str = "fe80000000000000021122fffe334455 02 40 20 80     eth0\n\
        00000000000000000000000000000001 01 80 10 80       lo\n";

    /// Opens these lists of sockets, of a network that has these addresses of IPv6.
    fn opens<'a>(
        lists: &'a [String; 2],
        addresses: &'a str,
    ) -> impl Fn(&'static str) -> io::Result<&'a [u8]> {
        move |path| {
            let is_sockets = LISTS.iter().position(|list| *list == path);
            Ok(is_sockets.map_or(addresses, |at| lists[at].as_str()).as_bytes())
        }
    }

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
        let (any6, own6) = (v6("0000000000000000"), v6("0000000001000000"));
        let (mapped, any_mapped) = (v6("FFFF00000100007F"), v6("FFFF000000000000"));
        let (any6, own6) = (any6.as_str(), own6.as_str());
        let (mapped, any_mapped) = (mapped.as_str(), any_mapped.as_str());
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
            // It may have connections of IPv6 alone.
            ("127.0.0.1:80", vec![], vec![(any6, "0A", 8), (own6, "0A", 9)], vec![]),
            ("127.0.0.1:80", vec![], vec![(mapped, "0A", 8)], vec![8]),
            ("127.0.0.1:80", vec![], vec![(any_mapped, "0A", 8)], vec![8]),
            ("[::ffff:127.0.0.1]:80", vec![("0100007F:0050", "0A", 7)], vec![], vec![7]),
            ("[::1]:80", vec![], vec![(any_mapped, "0A", 8)], vec![]),
            ("[::1]:80", vec![("00000000:0050", "0A", 7)], vec![(own6, "0A", 8)], vec![8]),
            ("[::1]:80", vec![("00000000:0050", "0A", 7)], vec![(any6, "0A", 8)], vec![8]),
            // Sockets that do not listen are passed over.
            (
                "127.0.0.1:80",
                vec![("0100007F:0051", "01", 8), ("0100007F:0050", "0A", 7)],
                vec![],
                vec![],
            ),
        ] {
            let lists = [list(&of_v4), list(&of_v6)];
            let open = opens(&lists, ADDRESSES);
            let found = super::at(at.parse().expect("an address"), open).expect("lists");
            let uids: Vec<u32> = found.iter().map(|one| one.uid).collect();
            assert_eq!(uids, expected, "{at} {of_v4:?} {of_v6:?}");
            assert!(found.iter().all(|one| one.inode == u64::from(one.uid) + 100), "{found:?}");
        }
    }

    #[test]
    fn socket_of_all_addresses_of_ipv6_counts_for_ipv4_where_ipv6_has_no_loopback_address() {
        let any = format!("{:032}:0050", 0);
        let lists = [list(&[]), list(&[(any.as_str(), "0A", 8)])];
        let found = |addresses: &str| {
            let address = "127.0.0.1:80".parse().expect("an address");
            super::at(address, opens(&lists, addresses)).expect("lists").len()
        };
        assert_eq!(found(ADDRESSES), 0);
        assert_eq!((found(""), found(ADDRESSES.lines().next().expect("one"))), (1, 1));
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn sockets_at_other_ports_have_no_bound_and_those_at_the_address_have_one() {
        let at = |others: usize, own: usize| {
            let mut sockets = vec![("0100007F:0051", "0A", 8); others];
            sockets.extend(std::iter::repeat_n(("0100007F:0050", "0A", 7), own));
            let lists = [list(&sockets), list(&[])];
            let open = opens(&lists, ADDRESSES);
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
