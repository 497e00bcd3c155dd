//! Standard output.

use crate::error::Error;
use crate::pending::reason;
use std::io::{self, BufWriter, ErrorKind, Write};

/// Writes to standard output. A reader that has seen enough is nobody's failure.
pub(crate) fn to_standard_output(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Error> {
    let mut out = BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            Err(Error::failure(format!("cannot write to standard output: {}", reason(&e))))
        }
        _ => Ok(()),
    }
}
