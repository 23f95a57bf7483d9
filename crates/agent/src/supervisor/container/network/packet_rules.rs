//! What the kernel does with the packets of one container: a table of nftables that belongs to a socket, and that the
//! kernel removes when the last process closes it, however that process ends.

use super::netlink::{Attributes, CREATE, Messages, Netlink};
use std::net::Ipv4Addr;

const TABLES: u16 = 10 << 8;
const NEW_TABLE: u16 = TABLES;
const NEW_CHAIN: u16 = TABLES | 3;
const NEW_RULE: u16 = TABLES | 6;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const IPV4: u8 = 2;
/// The kernel removes the table with the socket that made it.
const OWNED_BY_SOCKET: u32 = 2;
const REGISTER: u32 = 1;
/// The register of verdicts.
const VERDICT: u32 = 0;

/// Where a chain is in a packet's way, its priority there, and its type.
type Hook = (&'static str, u32, i32, &'static str);
const INPUT: Hook = ("input", 1, 0, "filter");
const FORWARD: Hook = ("forward", 2, 0, "filter");
const OUTPUT: Hook = ("output", 3, 0, "filter");
const LEAVE: Hook = ("leave", 4, 100, "nat");

/// A container's end of its link, as its node sees it.
pub(super) struct Link<'a> {
    /// Names the table too.
    pub name: &'a str,
    pub index: u32,
    pub address: Ipv4Addr,
    /// The addresses of all containers of the node: first and mask.
    pub containers: (Ipv4Addr, Ipv4Addr),
}

impl Link<'_> {
    /// Makes the table. It stays for as long as the socket is open.
    pub fn make_rules(&self) -> nix::Result<Netlink> {
        let (containers, mask) = self.containers;
        let mut batch = Messages::default();
        batch.add_silent(BATCH_BEGIN, &head(0, TABLES >> 8));
        batch.add(NEW_TABLE, CREATE, &head(IPV4, 0), |table| {
            table.text(1, self.name).put(2, &OWNED_BY_SOCKET.to_be_bytes());
        });
        for (name, hook, priority, kind) in [INPUT, FORWARD, OUTPUT, LEAVE] {
            batch.add(NEW_CHAIN, CREATE, &head(IPV4, 0), |chain| {
                chain.text(1, self.name).text(3, name);
                chain.nest(4, |own| {
                    own.put(1, &hook.to_be_bytes()).put(2, &priority.to_be_bytes());
                });
                chain.text(7, kind);
            });
        }
        // Loopback addresses of the node are the node's own, also where it routes them (`route_localnet`).
        self.rule(&mut batch, INPUT, |rule| {
            rule.packet_from(self.index).to([127, 0, 0, 0], [255, 0, 0, 0]).verdict(DROP);
        });
        // Nobody speaks for another: root of a privileged container gives its end any address.
        for chain in [INPUT, FORWARD] {
            self.rule(&mut batch, chain, |rule| {
                rule.packet_from(self.index).of_other_source_than(self.address).verdict(DROP);
            });
        }
        // Containers do not reach one another, and are reached from outside by mapped ports alone.
        self.rule(&mut batch, FORWARD, |rule| {
            rule.packet_from(self.index).to(containers.octets(), mask.octets()).verdict(DROP);
        });
        for chain in [FORWARD, OUTPUT] {
            self.rule(&mut batch, chain, |rule| {
                rule.packet_to(self.index).of_no_connection().verdict(DROP);
            });
        }
        // Anybody may listen on any port in the container. A packet from a privileged one would be taken for root's outside,
        // by NFS servers for one.
        for (chain, protocol) in [INPUT, FORWARD].into_iter().flat_map(|c| PORTED.map(|p| (c, p))) {
            self.rule(&mut batch, chain, |rule| {
                rule.packet_from(self.index).of_protocol(protocol).of_privileged_port();
                rule.verdict(DROP);
            });
        }
        self.rule(&mut batch, LEAVE, |rule| {
            rule.from(self.address).as_the_nodes_own();
        });
        batch.add_silent(BATCH_END, &head(0, TABLES >> 8));
        let socket = Netlink::open(libc::NETLINK_NETFILTER)?;
        socket.ask(&batch)?;
        Ok(socket)
    }

    fn rule(&self, batch: &mut Messages, chain: Hook, write: impl FnOnce(&mut Rule)) {
        let flags = (libc::NLM_F_CREATE | libc::NLM_F_APPEND) as u16;
        batch.add(NEW_RULE, flags, &head(IPV4, 0), |rule| {
            rule.text(1, self.name).text(2, chain.0);
            rule.nest(4, |expressions| write(&mut Rule { expressions }));
        });
    }
}

/// `nfgenmsg`
fn head(family: u8, resource: u16) -> [u8; 4] {
    let [high, low] = resource.to_be_bytes();
    [family, 0, high, low]
}

const DROP: u32 = 0;
/// The protocols that have ports: TCP, UDP, DCCP, SCTP, UDP-Lite.
const PORTED: [u8; 5] = [6, 17, 33, 132, 136];
const FIRST_UNPRIVILEGED_PORT: u16 = 1024;
/// Comparisons.
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;
const LESS: u32 = 2;

/// Conditions of one rule, one after the other, and what is done where all hold.
struct Rule<'a> {
    expressions: &'a mut Attributes,
}

impl Rule<'_> {
    fn packet_from(&mut self, interface: u32) -> &mut Self {
        self.interface(4, interface)
    }

    fn packet_to(&mut self, interface: u32) -> &mut Self {
        self.interface(5, interface)
    }

    fn interface(&mut self, key: u32, index: u32) -> &mut Self {
        self.expression("meta", |meta| {
            meta.put(1, &REGISTER.to_be_bytes()).put(2, &key.to_be_bytes());
        });
        self.equals(&index.to_ne_bytes())
    }

    fn of_protocol(&mut self, number: u8) -> &mut Self {
        const OF_TRANSPORT: u32 = 16;
        self.expression("meta", |meta| {
            meta.put(1, &REGISTER.to_be_bytes()).put(2, &OF_TRANSPORT.to_be_bytes());
        });
        self.equals(&[number])
    }

    fn of_privileged_port(&mut self) -> &mut Self {
        self.expression("payload", |payload| {
            // The first two bytes of the transport header.
            for (kind, value) in [(1, REGISTER), (2, 2), (3, 0), (4, 2)] {
                payload.put(kind, &u32::to_be_bytes(value));
            }
        });
        self.compared(LESS, &FIRST_UNPRIVILEGED_PORT.to_be_bytes())
    }

    fn from(&mut self, address: Ipv4Addr) -> &mut Self {
        self.address_at(12).equals(&address.octets())
    }

    fn of_other_source_than(&mut self, address: Ipv4Addr) -> &mut Self {
        self.address_at(12).compared(NOT_EQUAL, &address.octets())
    }

    fn to(&mut self, network: [u8; 4], mask: [u8; 4]) -> &mut Self {
        self.address_at(16).masked(&mask).equals(&network)
    }

    fn address_at(&mut self, offset: u32) -> &mut Self {
        self.expression("payload", |payload| {
            // Four bytes of the network header, into the register.
            for (kind, value) in [(1, REGISTER), (2, 1), (3, offset), (4, 4)] {
                payload.put(kind, &u32::to_be_bytes(value));
            }
        })
    }

    /// Neither of a connection that is there nor related to one.
    fn of_no_connection(&mut self) -> &mut Self {
        self.expression("ct", |state| {
            state.put(1, &REGISTER.to_be_bytes()).put(2, &0u32.to_be_bytes());
        });
        let established_or_related: u32 = 2 | 4;
        self.masked(&established_or_related.to_ne_bytes()).equals(&[0; 4])
    }

    fn masked(&mut self, mask: &[u8; 4]) -> &mut Self {
        self.expression("bitwise", |bits| {
            for (kind, value) in [(1, REGISTER), (2, REGISTER), (3, 4)] {
                bits.put(kind, &u32::to_be_bytes(value));
            }
            for (kind, value) in [(4, mask), (5, &[0; 4])] {
                bits.nest(kind, |data| {
                    data.put(1, value);
                });
            }
        })
    }

    fn equals(&mut self, value: &[u8]) -> &mut Self {
        self.compared(EQUAL, value)
    }

    fn compared(&mut self, how: u32, value: &[u8]) -> &mut Self {
        self.expression("cmp", |compare| {
            compare.put(1, &REGISTER.to_be_bytes()).put(2, &how.to_be_bytes());
            compare.nest(3, |data| {
                data.put(1, value);
            });
        })
    }

    fn verdict(&mut self, code: u32) {
        self.expression("immediate", |immediate| {
            immediate.put(1, &VERDICT.to_be_bytes());
            immediate.nest(2, |data| {
                data.nest(2, |verdict| {
                    verdict.put(1, &code.to_be_bytes());
                });
            });
        });
    }

    /// The packet leaves with an address of the node's own.
    fn as_the_nodes_own(&mut self) {
        self.expression("masq", |_| {});
    }

    fn expression(&mut self, name: &str, data: impl FnOnce(&mut Attributes)) -> &mut Self {
        self.expressions.nest(1, |one| {
            one.text(1, name).nest(2, data);
        });
        self
    }
}
