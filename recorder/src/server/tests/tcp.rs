//! The same over TCP.

use super::*;

fn server(configure: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Server {
    configure(Server::bind("http://127.0.0.1:0").register(false).recording(Arc::new(Fake::default()))).start().unwrap()
}

fn get(server: &Server, target: &str, headers: &[(&str, &str)]) -> Reply {
    Client::tcp(&server.info().url).send("GET", target, headers, b"")
}

#[test]
fn profiles_come_over_tcp() {
    let server = server(|builder| builder);
    let reply = get(&server, "/debug/pprof/profile?seconds=1&format=collapsed", &[]);
    assert_eq!(reply.status, 200);
    assert!(reply.text().contains("start;parse_json"), "{}", reply.text());
    let help = get(&server, "/nothing", &[]);
    assert!(
        help.text().contains(&format!("go tool pprof '{}/debug/pprof/profile", server.info().url)),
        "{}",
        help.text()
    );
}

#[test]
fn a_name_that_a_stranger_may_own_is_refused() {
    let server = server(|builder| builder);
    assert_eq!(get(&server, "/health", &[("Host", "rebound.example")]).status, 403);
    assert_eq!(get(&server, "/health", &[("Host", "127.0.0.1")]).status, 200);
    assert_eq!(get(&server, "/health", &[("Origin", "https://evil.example")]).status, 403);
    let without_host = Client::tcp(&server.info().url).send_raw(b"GET /health HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(without_host.status, 200);
}

#[test]
fn a_token_opens_any_address_under_any_name() {
    let server = server(|builder| builder.bind("http://0.0.0.0:0").token("s3cret"));
    assert!(server.info().url.starts_with("http://127.0.0.1:"), "{}", server.info().url);
    assert_eq!(get(&server, "/health", &[("Host", "pod.example")]).status, 401);
    let token = ("Authorization", "Bearer s3cret");
    assert_eq!(get(&server, "/health", &[("Host", "pod.example"), token]).status, 200);
}

#[test]
fn a_registered_server_is_found_in_the_directory_until_it_stops() {
    let directory = crate::registry::directory(std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).as_deref());
    let server = server(|builder| builder.register(true));
    let url = server.info().url.clone();
    let is_listed = || {
        let files = std::fs::read_dir(&directory).unwrap().flatten();
        files.filter_map(|file| std::fs::read_to_string(file.path()).ok()).any(|entry| entry.contains(&url))
    };
    assert!(is_listed());
    server.stop();
    assert!(!is_listed());
}
