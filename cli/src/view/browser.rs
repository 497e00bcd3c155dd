//! Opening the browser, so that other users of the machine do not learn the address.

use std::io::Write;
use std::process::{Command, Stdio};
use tempfile::NamedTempFile;

/// Has the user's browser open the address. The file that is returned leads it there, and goes when dropped.
///
/// The address is a secret, and what a process was started with can be read by everybody: the browser is given a file that only this user can read.
pub(super) fn open(address: &str) -> Result<NamedTempFile, String> {
    let cannot = |e: std::io::Error| format!("no browser was opened ({e}): open the address yourself");
    let mut file = tempfile::Builder::new().prefix("profrec-view-").suffix(".html").tempfile().map_err(cannot)?;
    let page = format!(
        "<!doctype html><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\">\
         <meta http-equiv=\"refresh\" content=\"0;url={address}\"><title>profrec view</title><a href=\"{address}\">profrec view</a>\n"
    );
    file.write_all(page.as_bytes()).and_then(|()| file.flush()).map_err(cannot)?;
    let mut opener = Command::new("xdg-open");
    opener.arg(file.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = opener.spawn().map_err(|e| cannot(std::io::Error::new(e.kind(), format!("xdg-open: {e}"))))?;
    // It may run as long as the browser does.
    std::thread::spawn(move || child.wait());
    Ok(file)
}
