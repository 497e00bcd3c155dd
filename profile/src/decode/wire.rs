//! Protocol buffers field by field, for messages of which there are so many that none may cost an allocation.

use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// What a field of a message holds.
pub(super) enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Nothing that a profile has.
    Other,
}

/// Takes the next field off a message. Most have a key of one byte, and a number or bytes.
#[inline(always)]
pub(super) fn field<'a>(rest: &mut &'a [u8]) -> Result<(u32, Field<'a>), DecodeError> {
    let before = *rest;
    if let [key @ 8..0x80, after @ ..] = before {
        let tag = u32::from(key >> 3);
        *rest = after;
        match key & 7 {
            0 => return Ok((tag, Field::Number(number(rest)?))),
            2 => {
                let length = number(rest)?;
                if let Some((bytes, after)) =
                    usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length))
                {
                    *rest = after;
                    return Ok((tag, Field::Bytes(bytes)));
                }
            }
            _ => {}
        }
        *rest = before;
    }
    any_field(rest)
}

/// The same for whatever stands there. What is wrong is told as it is for any other message.
#[cold]
#[inline(never)]
fn any_field<'a>(rest: &mut &'a [u8]) -> Result<(u32, Field<'a>), DecodeError> {
    let (tag, wire_type) = decode_key(rest)?;
    let before = *rest;
    let field = match wire_type {
        WireType::Varint => Field::Number(decode_varint(rest)?),
        WireType::LengthDelimited => {
            let length = decode_varint(rest)?;
            match usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length)) {
                Some((bytes, after)) => {
                    *rest = after;
                    Field::Bytes(bytes)
                }
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
#[inline(always)]
pub(super) fn number(rest: &mut &[u8]) -> Result<u64, DecodeError> {
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
