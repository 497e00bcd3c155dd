//! An engine that decodes what it is sent with Google's protobuf, OpenTelemetry's own messages and Parca's own client.

use crate::fleet::script;
use crate::support::Place;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A running engine; ended when dropped.
pub(crate) struct Engine {
    child: Child,
    file: PathBuf,
    pub(crate) port: u16,
}

impl Engine {
    /// Starts one that notes what it takes in this file of the place; on this port, or any if it is 0.
    pub(crate) fn start(place: &Place, file: &str, port: u16, arguments: &[&str]) -> Self {
        let file = place.path(file);
        let mut command = Command::new("python3");
        command.arg(script("receiver.py")).arg(&file).args(["--port", &port.to_string()]).args(arguments);
        command.env("PYTHONPATH", readers().join("python")).env("READERS", readers());
        let mut child = command.stdout(Stdio::piped()).spawn().expect("apt-get install python3");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().parse().expect("tests/run installs what the engine needs");
        Self { child, file, port }
    }

    /// `KIND=URL` of a sink that sends here.
    pub(crate) fn sink(&self, kind: &str) -> String {
        format!("{kind}=http://127.0.0.1:{}", self.port)
    }

    /// Everything it took so far.
    pub(crate) fn taken(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        let entries: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for entry in &entries {
            assert!(entry.get("problem").is_none(), "{entry}");
        }
        entries
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where `tests/run` puts what reads for us.
fn readers() -> PathBuf {
    let given = std::env::var_os("PROFREC_READERS").map(PathBuf::from);
    let readers = given.unwrap_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("../readers"));
    assert!(readers.join("python/google").exists(), "{} is missing: tests/run installs it", readers.display());
    readers
}
