//! What of a certificate both sides of a connection can sign (`tls-server-end-point`, RFC 5929): its hash, by the function with which it
//! was signed itself; where that is too weak, by SHA-256.

use ring::digest;

use super::der::{OBJECT_IDENTIFIER, SEQUENCE, element};

/// The object identifiers of signatures, as they are encoded, whose hash is not SHA-256.
const SHA384: [&[u8]; 2] = [
    // sha384WithRSAEncryption, ecdsa-with-SHA384
    &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0c],
    &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03],
];
const SHA512: [&[u8]; 2] = [
    // sha512WithRSAEncryption, ecdsa-with-SHA512
    &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0d],
    &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x04],
];
const SHA256: [&[u8]; 2] = [
    // sha256WithRSAEncryption, ecdsa-with-SHA256
    &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b],
    &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02],
];

/// The hash; `None`: the certificate is signed in a way that has no hash of its own (Ed25519), or cannot be read, and is bound to nothing.
pub(super) fn of(certificate: &[u8]) -> Option<Vec<u8>> {
    let (whole, _) = element(certificate, SEQUENCE)?;
    let (_, rest) = element(whole, SEQUENCE)?;
    let (algorithm, _) = element(rest, SEQUENCE)?;
    let (name, _) = element(algorithm, OBJECT_IDENTIFIER)?;
    let function = if SHA256.contains(&name) {
        &digest::SHA256
    } else if SHA384.contains(&name) {
        &digest::SHA384
    } else if SHA512.contains(&name) {
        &digest::SHA512
    } else {
        return None;
    };
    Some(digest::digest(function, certificate).as_ref().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed_by(algorithm: &'static rcgen::SignatureAlgorithm) -> Vec<u8> {
        let key = rcgen::KeyPair::generate_for(algorithm).expect("a key");
        let parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
        parameters
            .self_signed(&key)
            .expect("a certificate")
            .der()
            .to_vec()
    }

    #[test]
    fn the_hash_is_that_of_the_signature() {
        for (algorithm, function) in [
            (&rcgen::PKCS_ECDSA_P256_SHA256, &digest::SHA256),
            (&rcgen::PKCS_ECDSA_P384_SHA384, &digest::SHA384),
        ] {
            let certificate = signed_by(algorithm);
            let expected = digest::digest(function, &certificate).as_ref().to_vec();
            assert_eq!(of(&certificate), Some(expected));
        }
        assert_eq!(of(&signed_by(&rcgen::PKCS_ED25519)), None);
    }

    #[test]
    fn other_bytes_are_bound_to_nothing() {
        let certificate = signed_by(&rcgen::PKCS_ECDSA_P256_SHA256);
        for end in 0..certificate.len() {
            assert_eq!(of(&certificate[..end]), None);
        }
        assert_eq!(of(&[0x30, 0x88, 255, 255, 255, 255, 255, 255, 255, 255]), None);
    }
}
