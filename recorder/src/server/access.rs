//! Who may ask.
//!
//! A Unix socket is open to its owner and root, by its mode and by the peer's credentials. A TCP port asks for the token if one is
//! set; without one it is bound to loopback, where the remaining strangers are web pages in the user's browser: they are
//! told by the `Host` header (DNS rebinding) and by what browsers say of the page that asks (cross-site requests).

use std::net::IpAddr;

use hyper::header::{AUTHORIZATION, HOST, HeaderMap, ORIGIN};
use hyper::{Request, Uri};

use super::problem::Problem;
use crate::config::Token;

/// The rules of one server.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub(super) token: Option<Token>,
    /// For TCP: the name that the server was bound by, which clients may use besides IP literals and `localhost`.
    pub(super) tcp_host: Option<String>,
}

impl Access {
    /// Checks a request before anything else is looked at.
    pub(super) fn check<B>(&self, request: &Request<B>) -> Result<(), Problem> {
        if let Some(token) = &self.token {
            // A page that knows the token is not a stranger, and remote clients use names of their own for this host.
            return if bearer(request.headers()).is_some_and(|given| token.is(given)) {
                Ok(())
            } else {
                Err(Problem::Unauthorized)
            };
        }
        let Some(bound_name) = &self.tcp_host else { return Ok(()) };
        let host = host(request)?;
        if !host.is_none_or(|host| is_local(host_name(host), bound_name)) {
            return Err(Problem::Forbidden(
                "the Host header names another site: use an IP address or localhost in the URL, or set a token",
            ));
        }
        if is_cross_site(request.headers(), host) {
            return Err(Problem::Forbidden("requests from other web sites are not answered"));
        }
        Ok(())
    }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// The site that the client believes to talk to.
fn host<B>(request: &Request<B>) -> Result<Option<&str>, Problem> {
    let malformed = || Problem::BadRequest("the Host header is malformed".to_owned());
    let mut hosts = request.headers().get_all(HOST).iter();
    let header = hosts.next().map(|host| host.to_str().map_err(|_| malformed())).transpose()?;
    if hosts.next().is_some() {
        return Err(malformed());
    }
    // A request target with an authority wins over the header (RFC 9112, section 3.2.2).
    Ok(request.uri().authority().map(|authority| authority.as_str()).or(header).filter(|host| !host.is_empty()))
}

/// `host:port` without its port, `[v6]` without its brackets.
fn host_name(host: &str) -> &str {
    if let Some((address, _)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address;
    }
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

fn is_local(name: &str, bound_name: &str) -> bool {
    name.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost") || name.eq_ignore_ascii_case(bound_name)
}

fn is_cross_site(headers: &HeaderMap, host: Option<&str>) -> bool {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(origin) = headers.get(ORIGIN) {
        let authority = origin
            .to_str()
            .ok()
            .and_then(|origin| origin.parse::<Uri>().ok())
            .and_then(|origin| origin.authority().map(|authority| authority.as_str().to_owned()));
        return authority.as_deref() != host;
    }
    // Following a link from elsewhere is the user's own act.
    matches!(header("sec-fetch-site"), Some("cross-site" | "same-site")) && header("sec-fetch-mode") != Some("navigate")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(access: &Access, headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::builder().uri("/health");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        access.check(&request.body(()).unwrap()).map_or_else(|problem| problem.status().as_u16(), |()| 200)
    }

    fn tcp(name: &str) -> Access {
        Access { token: None, tcp_host: Some(name.to_owned()) }
    }

    #[test]
    fn tcp_answers_hosts_that_no_stranger_can_own() {
        for host in
            ["127.0.0.1", "127.0.0.1:80", "[::1]", "[::1]:80", "10.0.0.1:80", "localhost", "LocalHost:1", "box:80"]
        {
            assert_eq!(check(&tcp("box"), &[("host", host)]), 200, "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:80",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "0x7f.1",
            "[x]",
            ":80",
        ] {
            assert_eq!(check(&tcp("127.0.0.1"), &[("host", host)]), 403, "{host}");
        }
        assert_eq!(check(&tcp("127.0.0.1"), &[]), 200);
        assert_eq!(check(&tcp("127.0.0.1"), &[("host", "localhost"), ("host", "evil.example")]), 400);
    }

    #[test]
    fn a_target_with_an_authority_wins_over_the_host_header() {
        let request =
            Request::builder().uri("http://evil.example/health").header("host", "localhost").body(()).unwrap();
        assert!(tcp("127.0.0.1").check(&request).is_err());
    }

    #[test]
    fn pages_of_other_sites_are_not_answered() {
        let host = ("host", "127.0.0.1:80");
        let cases: [(&[(&str, &str)], u16); 8] = [
            (&[("origin", "http://127.0.0.1:80")], 200),
            (&[("origin", "http://127.0.0.1:81")], 403),
            (&[("origin", "https://evil.example")], 403),
            (&[("origin", "null")], 403),
            (&[("sec-fetch-site", "same-origin")], 200),
            (&[("sec-fetch-site", "none")], 200),
            (&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")], 403),
            (&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")], 200),
        ];
        for (headers, status) in cases {
            assert_eq!(check(&tcp("127.0.0.1"), &[&[host], headers].concat()), status, "{headers:?}");
        }
    }

    #[test]
    fn a_token_is_asked_of_every_request_and_suffices() {
        let access = Access { token: Some(Token::new("s3cret").unwrap()), tcp_host: Some("0.0.0.0".to_owned()) };
        for given in ["Bearer s3cret", "bearer s3cret", "BEARER  s3cret "] {
            assert_eq!(check(&access, &[("authorization", given), ("host", "pod.example")]), 200, "{given}");
        }
        for given in ["", "Bearer", "Bearer ", "Bearer s3cre", "Bearer s3crets", "Basic s3cret", "s3cret", "Bears3cret"]
        {
            assert_eq!(check(&access, &[("authorization", given)]), 401, "{given}");
        }
        assert_eq!(check(&access, &[]), 401);
    }

    #[test]
    fn a_unix_socket_does_not_look_at_hosts() {
        let unix = Access { token: None, tcp_host: None };
        assert_eq!(check(&unix, &[("host", "anything.example")]), 200);
    }
}
