//! A layer around the services of `tower` (axum, tonic, hyper): each request is handled under a label.

use super::{Labelled, future};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_layer::Layer;
use tower_service::Service;

/// Handles each request of a service under a label, on whichever threads its future is polled.
///
/// ```
/// # struct Request { path: String }
/// use profile_recorder::labels::TowerLayer;
/// let layer = TowerLayer::new("route", |request: &Request| request.path.clone());
/// ```
///
/// What the service itself does before it returns its future is under the label too. The value is asked for once a request; prefer the route to the path with its
/// parameters, so that there are few of them.
pub struct TowerLayer<F> {
    key: Cow<'static, str>,
    value: Arc<F>,
}

impl<F> TowerLayer<F> {
    /// Labels requests with `key` and what `value` says of the request.
    pub fn new(key: impl Into<Cow<'static, str>>, value: F) -> Self {
        Self { key: key.into(), value: Arc::new(value) }
    }
}

impl<F> Clone for TowerLayer<F> {
    fn clone(&self) -> Self {
        Self { key: self.key.clone(), value: Arc::clone(&self.value) }
    }
}

impl<F> fmt::Debug for TowerLayer<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TowerLayer").field("key", &self.key).finish_non_exhaustive()
    }
}

impl<S, F> Layer<S> for TowerLayer<F> {
    type Service = TowerLabelled<S, F>;

    fn layer(&self, service: S) -> Self::Service {
        TowerLabelled { layer: self.clone(), service }
    }
}

/// A service inside a [`TowerLayer`].
pub struct TowerLabelled<S, F> {
    layer: TowerLayer<F>,
    service: S,
}

impl<S: Clone, F> Clone for TowerLabelled<S, F> {
    fn clone(&self) -> Self {
        Self { layer: self.layer.clone(), service: self.service.clone() }
    }
}

impl<S: fmt::Debug, F> fmt::Debug for TowerLabelled<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TowerLabelled").field("key", &self.layer.key).field("service", &self.service).finish()
    }
}

impl<S, F, R, V> Service<R> for TowerLabelled<S, F>
where
    S: Service<R>,
    F: Fn(&R) -> V,
    V: fmt::Display,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Labelled<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let value = (self.layer.value)(&request);
        let key = self.layer.key.clone();
        let answer = super::with(&key, &value, || self.service.call(request));
        future(key, value, answer)
    }
}
