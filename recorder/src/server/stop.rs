//! The wish that the server stop, as every task hears it.

use tokio::sync::watch;

/// Completes when the stop is requested, or nobody is left who could request it.
pub(super) async fn requested(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|requested| *requested).await;
}
