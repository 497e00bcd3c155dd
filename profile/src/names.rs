//! What a frame is called, in every format the same.

use crate::{Frame, Profile, Symbols};
use std::borrow::Cow;

/// The names of a frame, innermost inlined function first; never empty.
///
/// Without a symbol it is `module+0xSVMA`, outside every mapping `[unknown]+0xADDRESS`: the address that would be looked up, inside the call.
pub fn of<'a>(frame: &'a Frame, profile: &Profile, symbols: &'a Symbols) -> Vec<Cow<'a, str>> {
    match symbols.get(frame) {
        [] => vec![without_symbol(frame, profile)],
        found => found.iter().map(|symbol| Cow::Borrowed(&*symbol.name)).collect(),
    }
}

fn without_symbol<'a>(frame: &'a Frame, profile: &Profile) -> Cow<'a, str> {
    match frame {
        Frame::Named(name) => Cow::Borrowed(name),
        Frame::Address { mapping, svma, kind } => {
            let svma = kind.for_lookup(*svma);
            let module = mapping.and_then(|id| profile.mapping(id)).map_or("[unknown]", |m| m.file_name());
            Cow::Owned(format!("{module}+{svma:#x}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AddressKind, Mapping, MappingId, Svma, SymbolFrame};

    #[test]
    fn a_frame_without_symbols_is_named_by_its_module() {
        let profile = Profile {
            mappings: vec![Mapping { path: "/usr/lib/libz.so.1".into(), ..Mapping::default() }],
            ..Profile::default()
        };
        let frame = |mapping| Frame::Address { mapping, svma: Svma(0x4f20), kind: AddressKind::ReturnAddress };
        let names = |frame: &Frame| of(frame, &profile, &Symbols::new())[0].clone().into_owned();
        assert_eq!(names(&frame(Some(MappingId(0)))), "libz.so.1+0x4f1f");
        assert_eq!(names(&frame(None)), "[unknown]+0x4f1f");
        assert_eq!(names(&Frame::named("malloc")), "malloc");
    }

    #[test]
    fn inlined_functions_come_before_the_one_around_them() {
        let frame = Frame::Address { mapping: None, svma: Svma(16), kind: AddressKind::Instruction };
        let mut symbols = Symbols::new();
        symbols.insert(frame.address().unwrap(), ["inner", "outer"].map(SymbolFrame::named).to_vec());
        assert_eq!(of(&frame, &Profile::default(), &symbols), ["inner", "outer"]);
    }
}
