//! Names without what changes from build to build though the function is the same.

use std::borrow::Cow;

/// Suffixes that compilers give to parts and copies of a function; a number may follow.
const CLONES: [&str; 8] = [".llvm.", ".cold", ".part.", ".isra.", ".constprop.", ".lto_priv.", ".localalias", ".warm"];

/// The name without hashes of the compiler, numbers of closures, marks of a function's parts, and addresses.
///
/// Code without a name is its module alone: one build's addresses mean nothing in another.
pub(crate) fn canonical(name: &str) -> Cow<'_, str> {
    let cut = without_address(without_hash(without_clones(name)));
    if cut.contains('#') || cut.contains('[') { Cow::Owned(without_numbers(cut)) } else { Cow::Borrowed(cut) }
}

/// `parse.cold`, `parse.part.0.isra.3`, `parse(int) [clone .cold]`.
fn without_clones(name: &str) -> &str {
    let name = name.split_once(" [clone ").map_or(name, |(before, _)| before);
    let ends = CLONES.iter().filter_map(|mark| {
        let at = name.find(mark)?;
        // A name that begins so is no function's part, and an operator's name may hold anything.
        let rest = name.get(at + mark.len()..)?;
        (at != 0 && rest.chars().all(|c| c.is_ascii_alphanumeric() || c == '.' || c == '_')).then_some(at)
    });
    ends.min().map_or(name, |end| &name[..end])
}

/// `app::parse::h0123456789abcdef`.
fn without_hash(name: &str) -> &str {
    match name.rsplit_once("::h") {
        Some((before, hash)) if hash.len() == 16 && is_hex(hash) => before,
        _ => name,
    }
}

/// `libz.so.1+0x4f20`, `parse+0x1f`, `0x7f0012`.
fn without_address(name: &str) -> &str {
    match name.rsplit_once("+0x") {
        Some((before, digits)) if !before.is_empty() && is_hex(digits) => before,
        _ if name.strip_prefix("0x").is_some_and(is_hex) => "[unknown]",
        _ => name,
    }
}

/// `app[9f8e7d6c5b4a3210]::parse::{closure#2}` is `app::parse::{closure}`.
fn without_numbers(name: &str) -> String {
    let mut kept = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find(['#', '[']) {
        let (before, from) = rest.split_at(at);
        kept.push_str(before);
        let (close, is_noise): (char, fn(&str) -> bool) = if from.starts_with('#') {
            ('}', |inside| !inside.is_empty() && inside.bytes().all(|b| b.is_ascii_digit()))
        } else {
            (']', |inside| inside.len() >= 12 && is_hex(inside))
        };
        let inside = from[1..].split_once(close).map(|(inside, _)| inside).filter(|inside| is_noise(inside));
        let taken = match inside {
            // The brace that closes stays, the bracket goes with the hash.
            Some(inside) => 1 + inside.len() + usize::from(close == ']'),
            None => {
                kept.push_str(&from[..1]);
                1
            }
        };
        rest = &from[taken..];
    }
    kept + rest
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_build_adds_goes_and_the_rest_stays() {
        for (name, expected) in [
            ("orders::parse::h0123456789abcdef", "orders::parse"),
            ("orders::hash::habc", "orders::hash::habc"),
            ("orders[9f8e7d6c5b4a3210]::parse::{closure#12}", "orders::parse::{closure}"),
            ("<[u8; 16] as orders[9f8e7d6c5b4a3210]::T>::f", "<[u8; 16] as orders::T>::f"),
            ("app::{{closure}}", "app::{{closure}}"),
            ("run()::{lambda(int)#2}::operator()", "run()::{lambda(int)}::operator()"),
            ("work.constprop.0.isra.0", "work"),
            ("work(int) [clone .cold]", "work(int)"),
            ("work.llvm.1234567890", "work"),
            (".cold", ".cold"),
            ("libz.so.1+0x4f20", "libz.so.1"),
            ("[unknown]+0x7f00", "[unknown]"),
            ("0x7f00", "[unknown]"),
            ("malloc", "malloc"),
            ("a#b[c", "a#b[c"),
            ("ü[é]#", "ü[é]#"),
        ] {
            assert_eq!(canonical(name), expected, "{name}");
        }
    }
}
