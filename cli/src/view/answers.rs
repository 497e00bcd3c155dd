//! What the page is answered.

use super::files::{self, Files};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Bytes};
use hyper::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Request, Response, StatusCode};
use percent_encoding::percent_decode_str;
use profile::Format;
use profile::encode::html;
use std::sync::Arc;

/// Always in memory.
pub(super) type Answer = Response<Full<Bytes>>;

/// Largest file that the browser may send.
const MAX_BODY: usize = 512 << 20;

/// Answers a request of the page; `path` is what follows the secret.
pub(super) async fn answer<B>(request: Request<B>, path: &str, files: Arc<Files>) -> Answer
where
    B: Body + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let query = request.uri().query().unwrap_or_default().to_owned();
    let result = match (request.method(), path) {
        (&Method::GET, "") => return page(),
        (&Method::GET, "page/info") => return body(StatusCode::OK, "application/json", info(&files)),
        (&Method::GET, "page/file") => file(&query, files).await,
        (&Method::POST, "page/convert") => match Limited::new(request.into_body(), MAX_BODY).collect().await {
            Ok(bytes) => convert(bytes.to_bytes(), &query, files).await,
            Err(_) => Err(format!("the file is larger than {} MiB, or was not sent to its end", MAX_BODY >> 20)),
        },
        _ => return text(StatusCode::NOT_FOUND, "not found"),
    };
    match result {
        Ok((content_type, bytes)) => {
            let mut answer = body(StatusCode::OK, content_type, bytes);
            // A page among them is to be saved, not to be run here.
            answer.headers_mut().insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
            answer
        }
        Err(why) => text(StatusCode::BAD_REQUEST, why),
    }
}

type Converted = Result<(&'static str, Vec<u8>), String>;

async fn file(query: &str, files: Arc<Files>) -> Converted {
    let index =
        parameter(query, "index").and_then(|index| index.parse().ok()).ok_or("which file? \"index\" is needed")?;
    converted(query, move |format| files.in_format(index, format)).await
}

async fn convert(bytes: Bytes, query: &str, files: Arc<Files>) -> Converted {
    let title = parameter(query, "title");
    converted(query, move |format| files.convert(&bytes, format, title)).await
}

/// Work that takes its time goes to a thread of its own.
async fn converted(
    query: &str,
    work: impl FnOnce(Option<Format>) -> Result<Vec<u8>, String> + Send + 'static,
) -> Converted {
    let format = files::format(&parameter(query, "format").unwrap_or_else(|| "page".to_owned()))?;
    let bytes =
        tokio::task::spawn_blocking(move || work(format)).await.map_err(|_| "the file cannot be converted")??;
    Ok((format.map_or("application/json", Format::content_type), bytes))
}

fn parameter(query: &str, name: &str) -> Option<String> {
    let value = query.split('&').filter_map(|part| part.split_once('=')).find(|(given, _)| *given == name)?.1;
    Some(percent_decode_str(value).decode_utf8_lossy().into_owned())
}

fn info(files: &Files) -> String {
    let formats = Format::ALL.map(|format| serde_json::json!({"name": format.name(), "extension": format.extension()}));
    serde_json::json!({"files": files.names(), "formats": formats}).to_string()
}

fn page() -> Answer {
    let mut answer = body(StatusCode::OK, "text/html; charset=utf-8", html::page(html::Host::Viewer, ""));
    answer.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(html::CONTENT_SECURITY_POLICY));
    answer
}

/// A text.
pub(super) fn text(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    body(status, "text/plain; charset=utf-8", text)
}

fn body(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    for (name, value) in [
        (CONTENT_TYPE, content_type),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CACHE_CONTROL, "no-store"),
        // The address is a secret.
        (REFERRER_POLICY, "no-referrer"),
    ] {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}
