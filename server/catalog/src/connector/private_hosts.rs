//! Which addresses belong to everybody, and which hosts at others may be written to all the same.
//!
//! Who may create a sink must not reach by it what only this machine or its network can reach: other services on loopback, the machines
//! beside it, the metadata of a cloud.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The hosts at private addresses that sinks may send to, as the configuration has them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrivateHosts(Vec<Allowed>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Allowed {
    All,
    /// By its name, in lower case.
    Name(String),
    /// By its address: this one and all with as many bits in common.
    Network(IpAddr, u8),
}

impl PrivateHosts {
    /// Names, addresses and networks (`10.1.0.0/16`) with commas between; `*` is all.
    ///
    /// # Errors
    /// Which part is none of these.
    pub fn parse(text: &str) -> Result<PrivateHosts, String> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        parts.map(one).collect::<Result<_, _>>().map(PrivateHosts)
    }

    /// Whether a host of this name (or address, as it is written) may be reached at this address.
    pub fn may_reach(&self, host: &str, address: IpAddr) -> bool {
        let address = address.to_canonical();
        is_public(address)
            || self.0.iter().any(|allowed| match allowed {
                Allowed::All => true,
                Allowed::Name(name) => name.eq_ignore_ascii_case(host),
                Allowed::Network(network, bits) => has_in_common(*network, address, *bits),
            })
    }
}

fn one(part: &str) -> Result<Allowed, String> {
    if part == "*" {
        return Ok(Allowed::All);
    }
    if let Some((address, bits)) = part.split_once('/') {
        let address: Option<IpAddr> = address.parse().ok();
        let bits: Option<u8> = bits.parse().ok();
        return match (address, bits) {
            (Some(address), Some(bits)) if bits <= width(address) => Ok(Allowed::Network(address, bits)),
            _ => Err(format!("\"{part}\" must be a network, such as 10.1.0.0/16")),
        };
    }
    if let Ok(address) = part.parse::<IpAddr>() {
        let address = address.to_canonical();
        return Ok(Allowed::Network(address, width(address)));
    }
    let is_name = part
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    match is_name {
        true => Ok(Allowed::Name(part.to_ascii_lowercase())),
        false => Err(format!(
            "\"{part}\" must be the name of a host, an address or a network"
        )),
    }
}

fn width(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// Whether two addresses of one kind begin with the same bits.
fn has_in_common(left: IpAddr, right: IpAddr, bits: u8) -> bool {
    // The bits behind are shifted out; as many as there are cannot be shifted, and nothing is in common then anyway.
    let differ = match (left, right) {
        (IpAddr::V4(left), IpAddr::V4(right)) => (left.to_bits() ^ right.to_bits())
            .checked_shr(32 - u32::from(bits))
            .unwrap_or(0)
            .into(),
        (IpAddr::V6(left), IpAddr::V6(right)) => (left.to_bits() ^ right.to_bits())
            .checked_shr(128 - u32::from(bits))
            .unwrap_or(0),
        _ => 1,
    };
    differ == 0
}

/// Whether an address is one that anybody can reach.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = match (a, b, c) {
        // This network, private, loopback, multicast, reserved, broadcast.
        (0 | 10 | 127 | 224..=255, ..) => true,
        // Between a provider and its customers.
        (100, 64..=127, _) => true,
        // Link-local, where clouds have their metadata.
        (169, 254, _) => true,
        (172, 16..=31, _) => true,
        (192, 168, _) => true,
        // Protocols, examples, measurements, relays.
        (192, 0, 0 | 2) | (192, 88, 99) | (198, 18..=19, _) | (198, 51, 100) | (203, 0, 113) => true,
        _ => false,
    };
    !is_special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let parts = address.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match parts {
        [0, 0, 0, 0, 0, 0xffff, high, low] => is_public_v4(v4(high, low)),
        // Translated to the address of the other kind by the network.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => is_public_v4(v4(high, low)),
        [0x2002, high, low, ..] => is_public_v4(v4(high, low)),
        // Protocols, tunnels among them; examples.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => false,
        // All that is given to somebody; not: loopback, unique local, link-local, multicast.
        [0x2000..=0x3fff, ..] => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_only_we_can_reach_are_private() {
        for private in [
            "0.0.0.0",
            "10.1.2.3",
            "127.0.0.1",
            "127.8.8.8",
            "100.64.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "192.0.0.1",
            "192.0.2.1",
            "198.18.0.1",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "2002:7f00:1::",
            "2002:a00:1::",
            "2001::1",
            "2001:db8::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "::127.0.0.1",
            "100::1",
            "3fff::1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
        for public in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.0.1",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.167.1.1",
            "169.253.1.1",
            "2606:4700::1",
            "2001:4860::8888",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::",
        ] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
    }

    #[test]
    fn hosts_are_allowed_by_name_address_and_network() {
        let hosts = PrivateHosts::parse("hooks.internal, 10.1.0.0/16,127.0.0.1,fd00::/8, ::1").unwrap();
        let may = |host: &str, address: &str| hosts.may_reach(host, address.parse().unwrap());
        assert!(may("hooks.internal", "192.168.0.1") && may("HOOKS.internal", "169.254.169.254"));
        assert!(may("x", "10.1.255.1") && !may("x", "10.2.0.1"));
        assert!(may("x", "127.0.0.1") && !may("x", "127.0.0.2"));
        assert!(
            may("x", "::ffff:127.0.0.1") && may("x", "::1") && may("x", "fd12::1") && !may("x", "fe80::1")
        );
        assert!(may("x", "8.8.8.8"));
        assert!(
            PrivateHosts::parse("*")
                .unwrap()
                .may_reach("x", "10.0.0.1".parse().unwrap())
        );
        assert!(
            PrivateHosts::parse("0.0.0.0/0")
                .unwrap()
                .may_reach("x", "10.0.0.1".parse().unwrap())
        );
        assert!(!PrivateHosts::default().may_reach("localhost", "127.0.0.1".parse().unwrap()));
        for wrong in ["10.0.0.0/33", "http://a", "a b", "10.0.0/8", "::/129"] {
            assert!(PrivateHosts::parse(wrong).is_err(), "{wrong}");
        }
    }
}
