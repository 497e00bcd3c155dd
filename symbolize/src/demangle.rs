//! Mangled names of Rust and C++ in the form that their authors wrote them.
//!
//! Compilers move the unlikely part of a function away and call it `NAME.cold`. No call leads there: it is a part of the
//! same frame, so it is shown by the name of the whole.
//!
//! A few hundred mangled bytes can stand for gigabytes of text or for unbounded recursion. Both are bounded here;
//! beyond the bounds the mangled name is shown. So are Swift's names: the only demangler for them, the compiler's, bounds
//! neither its output nor its stack, and aborts at names that are malformed (`$sSaySiD`).

use std::fmt::{self, Write};
use std::sync::Arc;

use cpp_demangle::{DemangleOptions, ParseOptions};

/// Longest mangled name that is looked at.
const MANGLED: usize = 32 << 10;
/// Longest demangled name.
const DEMANGLED: usize = 64 << 10;
/// Depth of C++ names. A parser level takes about 10 KiB of stack without optimisation.
const DEPTH: u32 = 96;

/// A name and, where it differs, the one in the symbol table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Name {
    pub(crate) shown: Arc<str>,
    pub(crate) system: Option<Arc<str>>,
}

impl Name {
    /// Demangles `symbol` where it is mangled.
    pub(crate) fn new(symbol: &str) -> Name {
        let whole = whole(symbol);
        let shown: Arc<str> = demangle(whole).map_or_else(|| whole.into(), Into::into);
        let system = (*shown != *symbol).then(|| symbol.into());
        Name { shown, system }
    }
}

/// The symbol without the suffixes of moved parts (`.cold`, and `.warm` by BOLT) and of link-time renaming. Suffixes of
/// clones, which are functions of their own, stay: `.part.0`, `.isra.0`, `.constprop.0`.
fn whole(symbol: &str) -> &str {
    let mut whole = symbol;
    loop {
        let numbered = whole.rsplit_once('.').filter(|(_, number)| number.bytes().all(|byte| byte.is_ascii_digit()));
        let (stem, has_number) = numbered.map_or((whole, false), |(stem, number)| (stem, !number.is_empty()));
        let moved = [".cold", ".warm"].iter().find_map(|suffix| stem.strip_suffix(suffix));
        let renamed = [".llvm", ".lto_priv"].iter().find_map(|suffix| stem.strip_suffix(suffix)).filter(|_| has_number);
        match moved.or(renamed) {
            Some(shorter) if !shorter.is_empty() => whole = shorter,
            _ => return whole,
        }
    }
}

fn demangle(symbol: &str) -> Option<String> {
    if symbol.len() > MANGLED || !symbol.starts_with(['_', 'R', 'Z']) {
        return None;
    }
    let mut text = Bounded(String::new());
    if let Ok(name) = rustc_demangle::try_demangle(symbol) {
        write!(text, "{name:#}").ok()?;
        return Some(text.0);
    }
    if !["_Z", "__Z", "___Z", "____Z", "_GLOBAL_"].iter().any(|prefix| symbol.starts_with(prefix)) {
        return None;
    }
    let options = ParseOptions::default().recursion_limit(DEPTH);
    let name = cpp_demangle::Symbol::new_with_options(symbol, &options).ok()?;
    let options = DemangleOptions::new().recursion_limit(DEPTH);
    name.structured_demangle(&mut text, &options).ok()?;
    Some(text.0)
}

/// Text that refuses to grow beyond [`DEMANGLED`] bytes.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > DEMANGLED {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_names_lose_their_hash_and_cpp_names_keep_their_parameters() {
        for (mangled, shown) in [
            ("_ZN4core3ptr13drop_in_place17h0123456789abcdefE", "core::ptr::drop_in_place"),
            ("_RNvCskwGfYPst2Cb_3foo3bar", "foo::bar"),
            ("_RNvMs_NtCs5rAyCwqJMpX_4core3numh8from_str", "<u8>::from_str"),
            ("_ZN5space3fooEibc", "space::foo(int, bool, char)"),
            ("_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector<int, std::allocator<int> >::push_back(int const&)"),
            ("_ZN5space3fooEi.cold", "space::foo(int)"),
            ("_ZN5space3fooEi.isra.0.cold", "space::foo(int) [clone .isra.0]"),
            ("main.cold", "main"),
            ("main.cold.1.llvm.7421", "main"),
            ("main.lto_priv.0", "main"),
        ] {
            let name = Name::new(mangled);
            assert_eq!(&*name.shown, shown);
            assert_eq!(name.system.as_deref(), Some(mangled));
        }
    }

    #[test]
    fn plain_names_stay() {
        for name in
            ["malloc", "_start", "__libc_start_main", "_Z", "_R", "", "Zebra", "_ZZZZZZ", "R_x", "main.part.0", ".cold"]
        {
            assert_eq!(Name::new(name), Name { shown: name.into(), system: None });
        }
    }

    #[test]
    fn names_of_swift_stay() {
        for name in ["$s4main3fooyyF", "_$s4main3fooyySi_SitF", "$S4main3fooyyF", "_T0SiD", "_TtSi", "$sSaySiD"] {
            assert_eq!(Name::new(name), Name { shown: name.into(), system: None });
        }
    }

    #[test]
    fn names_that_explode_stay_mangled() {
        // Each level doubles the text: f(X, X) where X is the pair of the level before.
        let mut doubling = "_Z1fSt4pairIiiE".to_owned();
        for level in 0..200 {
            let previous = if level == 0 { "S0_".to_owned() } else { format!("S{}_", base36(level)) };
            doubling += &format!("St4pairI{previous}{previous}E");
        }
        let deep = format!("_Z{}", "N".repeat(20_000));
        let nested = format!("_Z1f{}i", "P".repeat(30_000));
        let long = format!("_ZN{}E", "1a".repeat(40_000));
        for name in [doubling, deep, nested, long] {
            let started = std::time::Instant::now();
            let shown = Name::new(&name).shown;
            assert!(shown.len() <= DEMANGLED.max(name.len()));
            assert!(started.elapsed().as_secs() < 5, "{} bytes took {:?}", name.len(), started.elapsed());
        }
    }

    fn base36(mut number: usize) -> String {
        let mut digits = Vec::new();
        while number > 0 {
            digits.push(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[number % 36]);
            number /= 36;
        }
        String::from_utf8(digits.into_iter().rev().collect()).expect("digits are ASCII")
    }
}
