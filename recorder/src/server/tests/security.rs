//! Nobody uninvited.

use std::os::unix::fs::PermissionsExt;

use super::*;

#[test]
fn the_socket_is_private() {
    let running = Running::new();
    assert_eq!(running.socket.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn with_a_token_every_path_asks_for_it() {
    let running = Running::with(|builder| builder.token("s3cret"));
    for target in ["/", "/health", "/alloc/stats", "/debug/pprof/", "/debug/pprof/profile", "/nothing"] {
        let reply = running.get(target);
        assert_eq!((reply.status, reply.header("www-authenticate")), (401, "Bearer"), "{target}");
        assert!(!reply.text().contains("s3cret"));
    }
    assert_eq!(running.post("/sample", b"{}").status, 401);
    let reply = running.client().send("GET", "/health", &[("Authorization", "Bearer s3cret")], b"");
    assert_eq!(reply.status, 200);
}

#[test]
fn nothing_is_shared_with_other_origins() {
    let running = Running::new();
    let reply = running.client().send("GET", "/alloc/stats", &[("Origin", "https://evil.example")], b"");
    assert_eq!(reply.header("access-control-allow-origin"), "");
    for target in ["/", "/health", "/nothing", "/debug/pprof/profile", "/debug/pprof/profile?hz=0"] {
        let reply = running.get(target);
        assert_eq!(reply.header("x-content-type-options"), "nosniff", "{target}");
        assert_eq!(reply.header("access-control-allow-origin"), "", "{target}");
    }
}
