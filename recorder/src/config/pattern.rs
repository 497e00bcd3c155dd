//! Placeholders in values: `{PID}`, `{UUID}`, `{EXE}`.

use rustix::rand::{GetRandomFlags, getrandom};

/// Name and value of a placeholder.
pub(crate) type Placeholder<'a> = (&'a str, &'a dyn Fn() -> String);

/// Replaces `{NAME}` by its value; braces around anything else are refused.
pub(crate) fn expand(pattern: &str, placeholders: &[Placeholder<'_>]) -> Result<String, String> {
    let mut expanded = String::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('{') {
        expanded.push_str(before);
        let known = after.split_once('}').and_then(|(name, after)| {
            let (_, value) = placeholders.iter().find(|(known, _)| *known == name)?;
            Some((value, after))
        });
        let Some((value, after)) = known else {
            let names: Vec<_> = placeholders.iter().map(|(name, _)| format!("{{{name}}}")).collect();
            return Err(format!("only {} may stand in braces", names.join(" and ")));
        };
        expanded.push_str(&value());
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

/// Refuses a value that was meant for the variable with placeholders.
pub(crate) fn refuse_placeholders(url: &str, variable_with_placeholders: &str) -> Result<(), String> {
    if url.contains("{PID}") || url.contains("{UUID}") {
        return Err(format!("placeholders are replaced in {variable_with_placeholders} only"));
    }
    Ok(())
}

/// A random UUID in upper case (version 4, RFC 9562).
pub(crate) fn random_uuid() -> String {
    let mut bytes = [0_u8; 16];
    // Without the system call (a very old kernel, a strict filter) the clock and the pid must do: the name only has to be new.
    if getrandom(&mut bytes, GetRandomFlags::NONBLOCK) != Ok(bytes.len()) {
        let nanos = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        bytes = (nanos ^ (u128::from(std::process::id()) << 96)).to_le_bytes();
    }
    uuid_of(bytes)
}

fn uuid_of(bytes: [u8; 16]) -> String {
    let version = 0x4000_0000_0000_0000_0000;
    let variant = 0x8000_0000_0000_0000;
    let number = u128::from_be_bytes(bytes) & !(0xf << 76) & !(0x3 << 62) | version | variant;
    let hex = format!("{number:032X}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// Base name of this process's executable.
pub(crate) fn exe_name() -> String {
    let exe = std::env::current_exe().ok();
    exe.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned())).unwrap_or_else(|| "unknown".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_placeholders_are_replaced_everywhere() {
        let placeholders: &[Placeholder<'_>] = &[("PID", &|| "42".to_owned()), ("UUID", &|| "{PID}".to_owned())];
        for (pattern, expected) in
            [("", ""), ("a", "a"), ("{PID}", "42"), ("a-{PID}-{PID}.b", "a-42-42.b"), ("{UUID}}", "{PID}}")]
        {
            assert_eq!(expand(pattern, placeholders).as_deref(), Ok(expected), "{pattern}");
        }
        for pattern in ["{", "{}", "{pid}", "{PID", "{{PID}}", "{HOST}"] {
            assert_eq!(
                expand(pattern, placeholders).unwrap_err(),
                "only {PID} and {UUID} may stand in braces",
                "{pattern}"
            );
        }
    }

    #[test]
    fn a_uuid_has_its_version_and_variant() {
        assert_eq!(uuid_of([0; 16]), "00000000-0000-4000-8000-000000000000");
        assert_eq!(uuid_of([0xff; 16]), "FFFFFFFF-FFFF-4FFF-BFFF-FFFFFFFFFFFF");
        assert_ne!(random_uuid(), random_uuid());
    }
}
