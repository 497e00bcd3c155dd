//! Requests that are not answered with what they asked for.

use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};

use super::answer::{self, Answer};
use crate::limits;

/// Marks an error text that `go tool pprof` prints.
const X_GO_PPROF: HeaderName = HeaderName::from_static("x-go-pprof");

/// Why a request fails; its text is the body of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    BadRequest(String),
    Unauthorized,
    Forbidden(&'static str),
    NotFound(String),
    MethodNotAllowed {
        allow: &'static str,
    },
    BodyTimeout,
    Busy {
        retry_after: Duration,
    },
    /// Too many sessions were begun in too short a time.
    TooMany {
        retry_after: Duration,
    },
    TooLarge {
        limit: usize,
    },
    Failed(&'static str),
    Unavailable(String),
}

impl Problem {
    /// A parameter whose value is not allowed.
    pub(super) fn parameter(name: &str, value: &str, allowed: &str) -> Self {
        let shown: String = value.chars().take(100).collect();
        Self::BadRequest(format!("invalid value {shown:?} for {name:?}: {allowed} is needed"))
    }

    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::Busy { .. } => StatusCode::CONFLICT,
            Self::TooMany { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::BadRequest(text) | Self::NotFound(text) | Self::Unavailable(text) => text.clone(),
            Self::Unauthorized => {
                "a token is needed: send \"Authorization: Bearer TOKEN\" with the value of PROFILE_RECORDER_TOKEN"
                    .to_owned()
            }
            Self::Forbidden(text) | Self::Failed(text) => (*text).to_owned(),
            Self::MethodNotAllowed { allow } => format!("this path answers {allow} only"),
            Self::BodyTimeout => "the request body did not arrive in time".to_owned(),
            Self::Busy { retry_after } => format!(
                "another recording is running that cannot be shared; try again in {} s",
                whole_seconds(*retry_after)
            ),
            Self::TooMany { retry_after } => format!(
                "too many recordings were asked for in a short time; try again in {} s",
                whole_seconds(*retry_after)
            ),
            Self::TooLarge { limit } => format!("the request body is larger than {limit} bytes"),
        }
    }

    /// The answer: plain text as Go's handlers write it.
    pub(super) fn into_answer(self) -> Answer {
        let mut answer = answer::text(self.status(), self.text() + "\n");
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(X_GO_PPROF, HeaderValue::from_static("1"));
        match self {
            Self::MethodNotAllowed { allow } => drop(headers.insert(ALLOW, HeaderValue::from_static(allow))),
            Self::Busy { retry_after } | Self::TooMany { retry_after } => {
                drop(headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(retry_after))))
            }
            Self::Unauthorized => drop(headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
            // What is left of the body would be read as the next request.
            Self::TooLarge { .. } | Self::BodyTimeout => {
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        answer
    }
}

/// Seconds that a client waits: one at least, and no more than a session may take. (One without an end, for a file that is written when the process ends, would say thirty years.)
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0)).clamp(1, limits::MAX_SECONDS as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_text_that_go_tool_pprof_prints() {
        let answer = Problem::parameter("hz", "0", "a whole number").into_answer();
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
        assert_eq!(answer.headers()["content-type"], "text/plain; charset=utf-8");
        assert_eq!(answer.headers()["x-go-pprof"], "1");
        assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
    }

    #[test]
    fn a_long_or_binary_value_is_shown_short_and_on_one_line() {
        let Problem::BadRequest(text) = Problem::parameter("hz", &"\n\u{1}x".repeat(500), "a number") else { panic!() };
        assert!(text.len() < 600 && !text.contains('\n'), "{text}");
    }

    #[test]
    fn a_busy_answer_says_when_to_come_back() {
        for (millis, seconds) in [(0, "1"), (1, "1"), (1000, "1"), (1001, "2"), (29_500, "30"), (u64::MAX, "3600")] {
            let answer = Problem::Busy { retry_after: Duration::from_millis(millis) }.into_answer();
            assert_eq!(
                (answer.status().as_u16(), &answer.headers()["retry-after"]),
                (409, &HeaderValue::from_static(seconds))
            );
        }
    }
}
