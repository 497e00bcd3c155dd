//! A client that sends exactly what it is told.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Longer than anything here may take.
const PATIENCE: Duration = Duration::from_secs(30);

trait Socket: Read + Write {}
impl<S: Read + Write> Socket for S {}

/// A connection.
pub(crate) struct Client(Box<dyn Socket>);

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Client {
    pub(crate) fn unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(Box::new(stream))
    }

    pub(crate) fn tcp(url: &str) -> Self {
        let stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(Box::new(stream))
    }

    /// Sends one request and reads until the server closes the connection.
    pub(crate) fn send(self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let mut request = format!("{method} {target} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            request.push_str("Host: localhost\r\n");
        }
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        if method == "POST" {
            request.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        let mut bytes = (request + "\r\n").into_bytes();
        bytes.extend_from_slice(body);
        self.send_raw(&bytes).unwrap()
    }

    /// Sends bytes and reads until the server closes the connection. `None` if it closes without an answer.
    pub(crate) fn send_raw(mut self, bytes: &[u8]) -> Option<Reply> {
        self.write(bytes);
        self.read_reply()
    }

    /// Sends bytes; a server that has closed already is told by the reply.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes);
    }

    pub(crate) fn read_reply(mut self) -> Option<Reply> {
        let mut bytes = Vec::new();
        match self.0.read_to_end(&mut bytes) {
            Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
            _ => Reply::parse(&bytes),
        }
    }
}

impl Reply {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next()?.split(' ').nth(1)?.parse().unwrap();
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        Some(Self { status, headers, body: bytes[end + 4..].to_vec() })
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(given, _)| given == name).map_or("", |(_, value)| value)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}
