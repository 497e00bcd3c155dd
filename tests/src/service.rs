//! The example web service under a load, as a user would run it.

use crate::{build, scratch};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A running service that answers requests all the time; ended when dropped.
pub struct Service {
    child: Child,
    load: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    address: String,
}

impl Service {
    /// Starts the service with these environment variables, and two clients that it has answered a few times.
    ///
    /// # Panics
    /// If it does not start, or does not answer within a minute.
    pub fn start(variables: &[(&str, &str)]) -> Self {
        let program = build("axum-service");
        let mut child = Command::new(program)
            .env("LISTEN", "127.0.0.1:0")
            .envs(variables.iter().copied())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the service starts");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let address = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| Some(line.strip_prefix("http://")?.split('/').next()?.to_owned()))
            .expect("the service says its address");
        // Whatever else it says must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let stop = Arc::new(AtomicBool::new(false));
        let answers = Arc::new(AtomicUsize::new(0));
        let load = (0..2).map(|_| spawn_client(address.clone(), Arc::clone(&stop), Arc::clone(&answers))).collect();
        let service = Self { child, load, stop, address };
        let begun = Instant::now();
        while answers.load(Ordering::Relaxed) < 20 {
            assert!(begun.elapsed() < Duration::from_secs(60), "the service does not answer");
            std::thread::sleep(Duration::from_millis(5));
        }
        service
    }

    /// Starts the service with a server at a Unix socket, its process's id in the name, and these variables.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_at_socket(variables: &[(&str, &str)]) -> (Self, PathBuf, TempDir) {
        let directory = scratch();
        let pattern = format!("unix://{}/app-{{PID}}.sock", directory.path().display());
        let service = Self::start(&[&[("PROFILE_RECORDER_SERVER_URL_PATTERN", pattern.as_str())], variables].concat());
        let socket = directory.path().join(format!("app-{}.sock", service.pid()));
        (service, socket, directory)
    }

    /// The service's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// One request to the service itself; the answer's body.
    pub fn ask(&self, path: &str) -> String {
        ask(&self.address, path).unwrap_or_default()
    }
}

fn spawn_client(address: String, stop: Arc<AtomicBool>, answers: Arc<AtomicUsize>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            if ask(&address, "/orders?count=300").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")) {
                answers.fetch_add(1, Ordering::Relaxed);
            }
        }
    })
}

fn ask(address: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.load.drain(..).for_each(|client| drop(client.join()));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
