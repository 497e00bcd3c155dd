//! Patterns for thread names.

/// A pattern in which `*` stands for any text and `?` for any one character; everything else stands for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    pattern: Vec<char>,
}

impl Glob {
    /// The pattern; every text is one.
    pub fn new(pattern: &str) -> Self {
        Self { pattern: pattern.chars().collect() }
    }

    /// Whether the whole of `text` fits the pattern.
    pub fn matches(&self, text: &str) -> bool {
        let text: Vec<char> = text.chars().collect();
        let (mut p, mut t) = (0, 0);
        // Where to go on if the last `*` has to take one character more. One such place is enough, so the time is bounded.
        let mut retry = None;
        while t < text.len() {
            match self.pattern.get(p) {
                Some('*') => {
                    p += 1;
                    retry = Some((p, t));
                }
                Some(c) if *c == '?' || *c == text[t] => {
                    p += 1;
                    t += 1;
                }
                _ => match &mut retry {
                    Some((after_star, taken)) => {
                        *taken += 1;
                        (p, t) = (*after_star, *taken);
                    }
                    None => return false,
                },
            }
        }
        self.pattern[p..].iter().all(|c| *c == '*')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_take_any_text_and_question_marks_one_character() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("tokio-*", "tokio-worker", true),
            ("tokio-*", "tokio", false),
            ("*er-?", "worker-1", true),
            ("*er-?", "worker-10", false),
            ("w*k*r", "worker-worker", true),
            ("a?c", "aéc", true),
            ("[a]", "[a]", true),
        ] {
            assert_eq!(Glob::new(pattern).matches(text), expected, "{pattern} on {text}");
        }
    }

    #[test]
    fn many_stars_do_not_take_forever() {
        let pattern = "a*".repeat(50) + "b";
        assert!(!Glob::new(&pattern).matches(&"a".repeat(10_000)));
    }
}
