//! The endpoints in a server of the application's own.

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::IntoResponse;
use axum::routing::any;
use tokio::sync::watch;

use super::access::Access;
use super::recording::{Recording, ThisProcess};
use super::routes::{Offer, Service};
use crate::config::AllocInterval;
use crate::log::log;
use crate::session::SessionError;

/// The profiling endpoints (`/debug/pprof/...`, `/sample`, `/alloc/stats`) for the application's own axum server:
///
/// ```
/// # fn app() -> axum::Router {
/// axum::Router::new().merge(profile_recorder::router())
/// # }
/// ```
///
/// Who may ask is the application's matter: mount it where strangers do not come, or put a layer that asks for credentials around it. Unlike
/// [`Server`](crate::Server) it answers only while the application's runtime does. Allocations are sampled from the call on, at 512 KiB or
/// `PROFILE_RECORDER_ALLOC_INTERVAL`.
pub fn router() -> Router {
    let routes = ["/debug/pprof", "/debug/pprof/", "/debug/pprof/{name}", "/sample", "/samples", "/alloc/stats"];
    routes.iter().fold(Router::new(), |router, path| router.route(path, any(answer))).with_state(service())
}

/// Everything that a [`Server`](crate::Server) answers, for the application's own axum server: the flame graph page at `/`, `/health` and `/metrics` beside the endpoints of [`router`]. Since the application has
/// its own `/`, this is nested below a path, and the page is there, with and without a slash behind it (with `nest` instead of `nest_service`, only without):
///
/// ```
/// # fn app() -> axum::Router {
/// axum::Router::new().nest_service("/profiler", profile_recorder::router_with_page())
/// # }
/// ```
///
/// What [`router`] says of who may ask and of the application's runtime holds here as well; a browser sends the credentials (cookies, basic authentication) that it has for the application.
pub fn router_with_page() -> Router {
    Router::new().fallback(answer).with_state(service())
}

/// One for all routers of the process.
fn service() -> Arc<Service> {
    static SERVICE: OnceLock<Arc<Service>> = OnceLock::new();
    let service = SERVICE.get_or_init(|| {
        let (config, mistakes) = crate::config::Config::from_env();
        for mistake in mistakes {
            log!(Error, "{mistake}");
        }
        let interval = if config.alloc_interval == AllocInterval::Off { 0 } else { config.alloc_interval.bytes() };
        if let Err(SessionError::Unavailable(reason)) = ThisProcess.prepare(interval) {
            log!(Warn, "allocations are not recorded: {reason}");
        }
        // Nobody stops it, so the sender lives as long as the process.
        let (sender, stop) = watch::channel(false);
        std::mem::forget(sender);
        let access = Access { token: None, tcp_host: None };
        Arc::new(Service::new(Arc::new(ThisProcess), access, "http://localhost".to_owned(), Offer::default(), stop))
    });
    Arc::clone(service)
}

async fn answer(State(service): State<Arc<Service>>, request: Request) -> impl IntoResponse {
    service.answer(request).await
}
