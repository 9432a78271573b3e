//! As much of DER as is needed to find something in a certificate.

pub(super) const INTEGER: u8 = 0x02;
pub(super) const OBJECT_IDENTIFIER: u8 = 0x06;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;

/// The content of the first element (DER), which is of this kind, and what comes behind it.
pub(super) fn element(bytes: &[u8], kind: u8) -> Option<(&[u8], &[u8])> {
    let (found, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..0x80 => (usize::from(*first), rest),
        _ => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let length = digits.iter().try_fold(0_usize, |length, digit| {
                length.checked_mul(256)?.checked_add(usize::from(*digit))
            })?;
            (length, rest)
        }
    };
    let (content, rest) = rest.split_at_checked(length)?;
    (*found == kind).then_some((content, rest))
}
