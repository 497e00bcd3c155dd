//! Certificates, proxies, and tokens that nobody sees.

use super::*;
use crate::engine::Engine;
use crate::fleet::Fleet;
use serde_json::json;
use std::fs;

/// A certificate for 127.0.0.1, and the authority that vouches for it.
fn certificate(place: &Place) {
    let openssl = |arguments: &str| {
        let mut command = Command::new("openssl");
        command.args(arguments.split(' ')).current_dir(place.path(""));
        let made = command.output().expect("apt-get install openssl");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(&format!("req -x509 {key} -days 2 -subj /CN=authority -keyout ca.key -out ca.pem"));
    openssl(&format!("req -new {key} -subj /CN=engine -keyout key.pem -out engine.csr"));
    fs::write(place.path("names"), "subjectAltName=IP:127.0.0.1").unwrap();
    openssl("x509 -req -in engine.csr -CA ca.pem -CAkey ca.key -days 2 -extfile names -out engine.pem");
}

#[test]
fn a_token_goes_over_tls_through_a_proxy_to_an_engine_that_is_trusted_and_into_no_message() {
    let place = Place::new();
    let _fleet = Fleet::start(&place, 1);
    certificate(&place);
    let (authority, pem, key) = (place.path("ca.pem"), place.path("engine.pem"), place.path("key.pem"));
    let tls = ["--tls", pem.to_str().unwrap(), key.to_str().unwrap()];
    let engine = Engine::start(&place, "taken", 0, &tls);
    let proxy = Engine::start(&place, "proxied", 0, &[]);
    fs::write(place.path("token"), "hunter2\n").unwrap();
    let with = |ca: &str, drain: u32| {
        let mut command = agent(&place, &["-d", "1", "--verbose"]);
        let config = fs::read_to_string(place.path("agent.toml")).unwrap();
        let sink = format!(
            "[[sinks]]\nkind = 'pyroscope'\nurl = 'https://127.0.0.1:{}'\ntoken-file = {:?}\nproxy = 'http://127.0.0.1:{}'\n{ca}",
            engine.port,
            place.path("token"),
            proxy.port
        );
        fs::write(place.path("agent.toml"), config.replace("jitter", &format!("drain = {drain}\njitter")) + &sink)
            .unwrap();
        run(&mut command)
    };
    // Nobody vouches for the engine: nothing is sent, and the profile waits.
    let distrusted = with("", 1);
    assert!(distrusted.stderr.contains("pyroscope: 0 sent, 1 kept"), "{}", distrusted.stderr);
    let trusted = with(&format!("ca-file = {authority:?}\n"), 30);
    assert!(trusted.stderr.contains("pyroscope: 2 sent, 0 kept"), "the one that waited, too: {}", trusted.stderr);
    let taken = engine.taken();
    assert_eq!(taken.len(), 2);
    assert!(taken.iter().all(|entry| entry["headers"]["authorization"] == "Bearer hunter2"));
    let connects = proxy.taken();
    assert!(
        connects.len() >= 2 && connects.iter().all(|to| to["connect"] == json!(format!("127.0.0.1:{}", engine.port)))
    );
    for said in [&distrusted.stderr, &trusted.stderr] {
        assert!(!said.contains("hunter2"), "{said}");
    }
    let refused = with("ca-file = '/none.pem'\n", 1);
    refused.assert_refused(1, &["sink 'pyroscope': cannot read the certificates in '/none.pem'"]);
}
