//! Protocol buffers field by field, for messages of which there are so many that none may cost an allocation.

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// What a field of a message holds.
pub(super) enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Nothing that a profile has.
    Other,
}

/// Takes the next field off a message.
pub(super) fn field<'a>(rest: &mut &'a [u8]) -> Result<(u32, Field<'a>), prost::DecodeError> {
    // The fields of a sample have a key of one byte.
    let (tag, wire_type) = match rest.split_first() {
        Some((key, after)) if *key < 0x80 && key & 7 == 2 && *key > 7 => {
            *rest = after;
            (u32::from(key >> 3), WireType::LengthDelimited)
        }
        _ => decode_key(rest)?,
    };
    let field = match wire_type {
        WireType::Varint => Field::Number(number(rest)?),
        WireType::LengthDelimited => {
            let before = *rest;
            let length = number(rest)?;
            match usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length)) {
                Some((bytes, after)) => {
                    *rest = after;
                    Field::Bytes(bytes)
                }
                // What is wrong is told as it is for any other message.
                None => {
                    *rest = before;
                    skip_field(wire_type, tag, rest, DecodeContext::default())?;
                    Field::Other
                }
            }
        }
        _ => {
            skip_field(wire_type, tag, rest, DecodeContext::default())?;
            Field::Other
        }
    };
    Ok((tag, field))
}

/// Takes a number off; most have one byte or two.
pub(super) fn number(rest: &mut &[u8]) -> Result<u64, prost::DecodeError> {
    match **rest {
        [a, ref after @ ..] if a < 0x80 => {
            *rest = after;
            Ok(u64::from(a))
        }
        [a, b, ref after @ ..] if b < 0x80 => {
            *rest = after;
            Ok(u64::from(a & 0x7f) | u64::from(b) << 7)
        }
        _ => decode_varint(rest),
    }
}
