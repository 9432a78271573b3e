//! The name in a client's certificate by which it is let in: the common name of its subject.

use super::der::{INTEGER, OBJECT_IDENTIFIER, SEQUENCE, SET, element};

/// What comes first where a certificate has a version.
const VERSION: u8 = 0xa0;
/// `id-at-commonName`.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// The kinds of texts that are UTF-8: UTF8String, PrintableString, IA5String.
const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];

/// The name; `None`: it has none, several, or one that is not a plain text, and nobody is let in by it.
pub(super) fn of(certificate: &[u8]) -> Option<String> {
    let (whole, _) = element(certificate, SEQUENCE)?;
    let (signed, _) = element(whole, SEQUENCE)?;
    let rest = element(signed, VERSION).map_or(signed, |(_, rest)| rest);
    let (_serial, rest) = element(rest, INTEGER)?;
    let (_algorithm, rest) = element(rest, SEQUENCE)?;
    let (_issuer, rest) = element(rest, SEQUENCE)?;
    let (_validity, rest) = element(rest, SEQUENCE)?;
    let (mut subject, _) = element(rest, SEQUENCE)?;
    let mut found = None;
    while !subject.is_empty() {
        let (mut names, after) = element(subject, SET)?;
        subject = after;
        while !names.is_empty() {
            let (pair, after) = element(names, SEQUENCE)?;
            names = after;
            let (kind, value) = element(pair, OBJECT_IDENTIFIER)?;
            if kind != COMMON_NAME {
                continue;
            }
            let text = TEXTS.iter().find_map(|kind| element(value, *kind));
            let text = String::from_utf8(text?.0.to_vec()).ok()?;
            if text.contains(char::is_control) || found.replace(text).is_some() {
                return None;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, DnValue, KeyPair};

    fn certificate(names: &[(DnType, DnValue)]) -> Vec<u8> {
        let mut parameters = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in names {
            parameters.distinguished_name.push(kind.clone(), value.clone());
        }
        let key = KeyPair::generate().expect("a key");
        parameters
            .self_signed(&key)
            .expect("a certificate")
            .der()
            .to_vec()
    }

    fn name(text: &str) -> (DnType, DnValue) {
        (DnType::CommonName, DnValue::Utf8String(text.to_owned()))
    }

    #[test]
    fn the_common_name_is_found_among_others() {
        let organization = (DnType::OrganizationName, DnValue::Utf8String("ACME".to_owned()));
        let found = |names: &[(DnType, DnValue)]| of(&certificate(names));
        assert_eq!(found(&[name("ann")]), Some("ann".to_owned()));
        assert_eq!(
            found(&[organization.clone(), name("Zoë")]),
            Some("Zoë".to_owned())
        );
        let printable = DnValue::PrintableString("ann".try_into().expect("it is printable"));
        assert_eq!(found(&[(DnType::CommonName, printable)]), Some("ann".to_owned()));
        assert_eq!(found(&[organization]), None);
        assert_eq!(found(&[]), None);
        assert_eq!(
            found(&[name("ann\0.evil")]),
            None,
            "who reads up to the zero sees another name"
        );
    }

    #[test]
    fn other_bytes_have_no_name() {
        let certificate = certificate(&[name("ann")]);
        for end in 0..certificate.len() {
            assert_eq!(of(&certificate[..end]), None);
        }
        // Whatever becomes of a byte, nothing is read beyond the end.
        for at in 0..certificate.len() {
            for byte in [0, 0x30, 0x80, 0x84, 0xff] {
                let mut changed = certificate.clone();
                changed[at] = byte;
                let _ = of(&changed);
            }
        }
    }
}
