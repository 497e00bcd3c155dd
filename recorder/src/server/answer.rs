//! Answers and the headers that all of them carry.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE, HeaderValue, LOCATION, X_CONTENT_TYPE_OPTIONS};
use hyper::{Response, StatusCode};

/// What a request is answered with; always in memory.
pub(super) type Answer = Response<Full<Bytes>>;

/// An answer of that type.
pub(super) fn body(status: StatusCode, content_type: &str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(content_type) = HeaderValue::from_str(content_type) {
        headers.insert(CONTENT_TYPE, content_type);
    }
    answer
}

/// A text.
pub(super) fn text(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    body(status, "text/plain; charset=utf-8", text)
}

/// A page.
pub(super) fn html(page: String) -> Answer {
    body(StatusCode::OK, "text/html; charset=utf-8", page)
}

/// JSON.
pub(super) fn json(json: String) -> Answer {
    body(StatusCode::OK, "application/json", json)
}

/// A file that a browser saves under that name.
pub(super) fn attachment(content_type: &str, file_name: &str, bytes: impl Into<Bytes>) -> Answer {
    let mut answer = body(StatusCode::OK, content_type, bytes);
    if let Ok(disposition) = HeaderValue::from_str(&format!("attachment; filename=\"{file_name}\"")) {
        answer.headers_mut().insert(CONTENT_DISPOSITION, disposition);
    }
    answer
}

/// Sends the client to another path.
pub(super) fn redirect(to: &str) -> Answer {
    let mut answer = text(StatusCode::TEMPORARY_REDIRECT, "see /debug/pprof/\n");
    if let Ok(to) = HeaderValue::from_str(to) {
        answer.headers_mut().insert(LOCATION, to);
    }
    answer
}
