//! A program under `qemu-aarch64`, driven by gdb's remote protocol.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Numbers of signals in the protocol.
pub(crate) const TRAP: u8 = 5;
pub(crate) const USR1: u8 = 30;

/// Bytes of memory that are read at once. A reply holds two digits for each, and at most 4 KiB.
const WINDOW: usize = 1024;

/// The stopped program. Dropping ends it.
pub(crate) struct Guest {
    program: Child,
    replies: BufReader<UnixStream>,
    reply: Vec<u8>,
    /// Memory at an address, since the program stopped.
    window: (u64, String),
}

/// The registers that the protocol's packet `g` begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cpu {
    pub(crate) x: [u64; 31],
    pub(crate) sp: u64,
    pub(crate) pc: u64,
}

/// Where the program stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// By this signal, which it has not seen yet.
    Signal(u8),
    Exited,
}

impl Guest {
    /// Stopped before its first instruction. `root` holds its dynamic linker and libraries.
    pub(crate) fn start(root: &str, program: &Path, arguments: &[&str], environment: &[&str]) -> Self {
        // The path of a socket may be as long as 107 bytes, which those in a target directory need not be.
        let name = format!("profile-recorder-{}-{}.socket", std::process::id(), program.file_name().unwrap().display());
        let socket = std::env::temp_dir().join(name);
        let mut command = Command::new("qemu-aarch64");
        command.args(["-cpu", "max", "-L", root, "-g"]).arg(&socket);
        command
            .args(environment.iter().flat_map(|variable| ["-E", variable]))
            .arg(program)
            .args(arguments)
            .stdout(Stdio::piped());
        let mut program = command.spawn().expect("qemu-aarch64 (package qemu-user) is installed");
        let stream = loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break stream,
                Err(_) => assert_eq!(program.try_wait().unwrap(), None, "qemu-aarch64 has ended"),
            }
            std::thread::yield_now();
        };
        std::fs::remove_file(&socket).unwrap();
        let mut guest =
            Self { program, replies: BufReader::new(stream), reply: Vec::new(), window: (0, String::new()) };
        assert_eq!(stop(guest.ask("?")), Stop::Signal(TRAP));
        // Registers can be written by those only who have asked how they are called.
        guest.ask("qXfer:features:read:target.xml:0,10");
        guest
    }

    /// What the program prints up to a line.
    pub(crate) fn lines_until(&mut self, last: &str) -> Vec<String> {
        let output = self.program.stdout.as_mut().expect("it is piped");
        let lines = BufReader::with_capacity(1, output).lines().map(Result::unwrap);
        lines.take_while(|line| line != last).collect()
    }

    /// Goes on until the program stops by itself.
    pub(crate) fn go(&mut self) -> Stop {
        self.window.1.clear();
        stop(self.ask("c"))
    }

    /// Runs one instruction, after the program has seen a signal if one is given.
    pub(crate) fn step(&mut self, signal: Option<u8>) -> Stop {
        self.window.1.clear();
        match signal {
            None => stop(self.ask("s")),
            Some(signal) => stop(self.ask(&format!("vCont;S{signal:02x}"))),
        }
    }

    pub(crate) fn cpu(&mut self) -> Cpu {
        let reply = self.ask("g");
        let register = |number| word(reply, number * 8).expect("registers can be read");
        Cpu { x: std::array::from_fn(register), sp: register(31), pc: register(32) }
    }

    /// The word at an address; `None` where it cannot be read.
    pub(crate) fn word(&mut self, address: u64) -> Option<u64> {
        let (start, window) = &self.window;
        if let Some(word) = word(window, usize::try_from(address.wrapping_sub(*start)).ok()?) {
            return Some(word);
        }
        // At the end of what can be read, more cannot.
        for length in [WINDOW, 8] {
            self.window = (address, self.ask(&format!("m{address:x},{length:x}")).to_owned());
            if let Some(word) = word(&self.window.1, 0) {
                return Some(word);
            }
        }
        None
    }

    pub(crate) fn set_pc(&mut self, pc: u64) {
        assert_eq!(self.ask(&format!("P20={:016x}", pc.swap_bytes())), "OK");
    }

    /// One request after the other: the emulator loses those that come before its reply to another.
    fn ask(&mut self, request: &str) -> &str {
        let sum = request.bytes().fold(0_u8, u8::wrapping_add);
        // The plus confirms the reply before.
        self.replies.get_ref().write_all(format!("+${request}#{sum:02x}").as_bytes()).unwrap();
        self.reply.clear();
        self.replies.read_until(b'#', &mut self.reply).unwrap();
        self.replies.read_exact(&mut [0; 2]).expect("qemu-aarch64 goes on");
        let start = self.reply.iter().position(|byte| *byte == b'$').expect("a reply begins with it");
        str::from_utf8(&self.reply[start + 1..self.reply.len() - 1]).unwrap()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended before.
        let _ended = self.program.kill();
        let _status = self.program.wait();
    }
}

fn stop(reply: &str) -> Stop {
    match reply.as_bytes() {
        [b'T', ..] => Stop::Signal(u8::from_str_radix(&reply[1..3], 16).unwrap()),
        [b'W', ..] => Stop::Exited,
        _ => panic!("{reply}"),
    }
}

/// The word at an offset in memory that is written as digits; `None` if it ends before, or is an error.
fn word(digits: &str, offset: usize) -> Option<u64> {
    let start = offset.checked_mul(2)?;
    let word = u64::from_str_radix(digits.get(start..start.checked_add(16)?)?, 16);
    Some(word.expect("digits").swap_bytes())
}
