//! The server's side of SCRAM-SHA-256 (RFC 5802, RFC 7677), as PostgreSQL speaks it.
//!
//! ```text
//!   client: n,,n=,r=NONCE                     begin()  -> server: r=NONCE+OURS,s=SALT,i=4096
//!   client: c=biws,r=NONCE+OURS,p=PROOF       finish() -> server: v=SIGNATURE
//! ```
//!
//! The name inside the exchange is passed over: the start-up packet has said who it is. With SCRAM-SHA-256-PLUS both sides sign which
//! certificate they saw, so that nobody in between can pass the exchange on.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::verifier::Verifier;

/// The mechanism without channel binding.
pub const PLAIN: &str = "SCRAM-SHA-256";
/// The mechanism with it.
pub const PLUS: &str = "SCRAM-SHA-256-PLUS";
/// The one kind of channel binding.
const BINDING: &str = "tls-server-end-point";

/// Why an exchange ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A message has not the form that it must have.
    #[error("malformed SCRAM message: {0}")]
    Malformed(&'static str),
    /// The two sides do not see the same channel.
    #[error("{0}")]
    Binding(&'static str),
    /// The password is wrong.
    #[error("the password is wrong")]
    Wrong,
}

/// What of the channel both sides can sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel<'a> {
    /// The client has chosen the mechanism without it, though the server has offered the other one if this is true.
    Unbound { was_offered: bool },
    /// The hash of the server's certificate.
    Bound(&'a [u8]),
}

/// An exchange whose first half is done.
#[derive(Debug)]
pub struct Waiting {
    verifier: Verifier,
    nonce: String,
    /// What the client must send as `c=`.
    binding: String,
    /// The messages so far, as both sides sign them.
    exchanged: String,
}

/// Answers the client's first message. `nonce` is not to be guessed.
///
/// # Errors
/// The message is malformed, or the channel is not the one that the client sees.
pub fn begin(
    first: &[u8],
    verifier: Verifier,
    nonce: [u8; 18],
    channel: Channel<'_>,
) -> Result<(String, Waiting), Fault> {
    let first = text(first)?;
    let mut parts = first.splitn(3, ',');
    let (Some(flag), Some(identity), Some(bare)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(Fault::Malformed("its parts are missing"));
    };
    if !identity.is_empty() && !identity.starts_with("a=") {
        return Err(Fault::Malformed("its second part is no authorization identity"));
    }
    if !identity.is_empty() {
        return Err(Fault::Malformed("authorization identities are not supported"));
    }
    let mut bound = format!("{flag},{identity},").into_bytes();
    match (flag, channel) {
        ("n", Channel::Unbound { .. }) | ("y", Channel::Unbound { was_offered: false }) => {}
        ("y", Channel::Unbound { was_offered: true }) => {
            return Err(Fault::Binding(
                "the client supports channel binding and believes that the server does not: the connection may be intercepted",
            ));
        }
        (flag, Channel::Bound(data)) if flag.strip_prefix("p=") == Some(BINDING) => bound.extend(data),
        (flag, Channel::Bound(_)) if flag.starts_with("p=") => {
            return Err(Fault::Binding("this kind of channel binding is not supported"));
        }
        (flag, Channel::Unbound { .. }) if flag.starts_with("p=") => {
            return Err(Fault::Binding(
                "channel binding goes with SCRAM-SHA-256-PLUS only",
            ));
        }
        ("n" | "y", Channel::Bound(_)) => {
            return Err(Fault::Binding("SCRAM-SHA-256-PLUS needs channel binding"));
        }
        _ => return Err(Fault::Malformed("its channel binding flag is not n, y or p")),
    }
    let mut attributes = bare.split(',');
    if !attributes.next().is_some_and(|name| name.starts_with("n=")) {
        return Err(Fault::Malformed(
            "the name is missing, or an extension is required",
        ));
    }
    let theirs = attributes
        .next()
        .and_then(|nonce| nonce.strip_prefix("r="))
        .filter(|nonce| !nonce.is_empty() && nonce.bytes().all(|byte| byte.is_ascii_graphic()))
        .ok_or(Fault::Malformed("the nonce is missing"))?;
    let nonce = format!("{theirs}{}", BASE64.encode(nonce));
    let answer = format!("r={nonce},s={},i={}", verifier.salt_text(), verifier.iterations());
    let waiting = Waiting {
        exchanged: format!("{bare},{answer}"),
        verifier,
        nonce,
        binding: BASE64.encode(bound),
    };
    Ok((answer, waiting))
}

impl Waiting {
    /// Answers the client's last message, if it shows that it knows the password.
    ///
    /// # Errors
    /// It does not, the message is malformed, or the channel is not the one that the client sees.
    pub fn finish(self, last: &[u8]) -> Result<String, Fault> {
        let last = text(last)?;
        let (without_proof, proof) = last
            .rsplit_once(",p=")
            .ok_or(Fault::Malformed("the proof is missing"))?;
        let mut attributes = without_proof.split(',');
        let binding = attributes.next().and_then(|binding| binding.strip_prefix("c="));
        let nonce = attributes.next().and_then(|nonce| nonce.strip_prefix("r="));
        if binding.is_none() || nonce.is_none() {
            return Err(Fault::Malformed("the channel binding or the nonce is missing"));
        }
        if binding != Some(self.binding.as_str()) {
            return Err(Fault::Binding(
                "the channel of the client is not the channel of the server: the connection may be intercepted",
            ));
        }
        if nonce != Some(self.nonce.as_str()) {
            return Err(Fault::Malformed("the nonce does not match"));
        }
        let proof = BASE64
            .decode(proof)
            .map_err(|_| Fault::Malformed("the proof is not base64"))?;
        let exchanged = format!("{},{without_proof}", self.exchanged);
        if !self.verifier.is_proven(exchanged.as_bytes(), &proof) {
            return Err(Fault::Wrong);
        }
        Ok(format!("v={}", self.verifier.signature(exchanged.as_bytes())))
    }
}

fn text(bytes: &[u8]) -> Result<&str, Fault> {
    std::str::from_utf8(bytes).map_err(|_| Fault::Malformed("it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNBOUND: Channel<'static> = Channel::Unbound { was_offered: false };

    /// RFC 7677, section 3, whose nonce of the server is not base64 of bytes: the messages are made by hand.
    #[test]
    fn the_example_of_the_standard_is_accepted() {
        let salt = "W22ZaJ0SNY7soEsUEjb6gQ==";
        let verifier: Verifier = format!(
            "SCRAM-SHA-256$4096:{salt}$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
        )
        .parse()
        .unwrap();
        assert!(verifier.accepts("pencil"));
        let nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let waiting = Waiting {
            exchanged: format!("n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s={salt},i=4096"),
            verifier,
            nonce: nonce.to_owned(),
            binding: "biws".to_owned(),
        };
        let last = format!("c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
        assert_eq!(
            waiting.finish(last.as_bytes()).unwrap(),
            "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
        );
    }

    #[test]
    fn what_does_not_go_with_the_channel_is_refused() {
        let bound = Channel::Bound(b"certificate");
        let offered = Channel::Unbound { was_offered: true };
        let begun = |first: &str, channel| {
            begin(first.as_bytes(), Verifier::of("x"), [0; 18], channel).map(|(answer, _)| answer)
        };
        assert!(begun("n,,n=,r=abc", UNBOUND).unwrap().starts_with("r=abc"));
        assert!(begun("y,,n=,r=abc", UNBOUND).is_ok());
        assert!(begun("n,,n=,r=abc", offered).is_ok());
        assert!(begun("p=tls-server-end-point,,n=,r=abc", bound).is_ok());
        for (first, channel) in [
            ("y,,n=,r=abc", offered),
            ("n,,n=,r=abc", bound),
            ("y,,n=,r=abc", bound),
            ("p=tls-unique,,n=,r=abc", bound),
            ("p=tls-server-end-point,,n=,r=abc", UNBOUND),
        ] {
            assert!(
                matches!(begun(first, channel), Err(Fault::Binding(_))),
                "{first} {channel:?}"
            );
        }
        for first in [
            "",
            "n",
            "n,,",
            "x,,n=,r=a",
            "n,a=root,n=,r=a",
            "n,,m=1,r=a",
            "n,,n=,r=",
            "n,,n=,r=\u{7}",
        ] {
            assert!(
                matches!(begun(first, UNBOUND), Err(Fault::Malformed(_))),
                "{first}"
            );
        }
    }

    #[test]
    fn a_wrong_proof_nonce_or_channel_ends_it() {
        let last = |binding: &str, nonce: &str, proof: &str| {
            let (answer, waiting) = begin(b"n,,n=,r=abc", Verifier::of("x"), [7; 18], UNBOUND).unwrap();
            let ours = answer.split(',').next().unwrap().strip_prefix("r=").unwrap();
            let nonce = if nonce.is_empty() { ours } else { nonce };
            waiting.finish(format!("c={binding},r={nonce},p={proof}").as_bytes())
        };
        let proof = BASE64.encode([0; 32]);
        assert_eq!(last("biws", "", &proof), Err(Fault::Wrong));
        assert_eq!(last("biws", "", &BASE64.encode([0; 8])), Err(Fault::Wrong));
        assert!(matches!(last("eSws", "", &proof), Err(Fault::Binding(_))));
        assert!(matches!(last("biws", "abcd", &proof), Err(Fault::Malformed(_))));
        assert!(matches!(last("biws", "", "%"), Err(Fault::Malformed(_))));
    }
}
