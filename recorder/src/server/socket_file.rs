//! Unix sockets in the file system: created for their owner alone, stale ones replaced, removed in the end.

use crate::own_file::OwnFile;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use tokio::net::UnixStream;

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 128;
/// Read and write for the owner.
const PRIVATE: u32 = 0o600;

/// Binds a socket at `path` that only its owner can open.
pub(super) async fn listen_at(path: &Path) -> io::Result<(UnixListener, OwnFile)> {
    let (listener, file) = match bind_private(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            remove_stale(path).await?;
            bind_private(path)?
        }
        other => other?,
    };
    let metadata = path.symlink_metadata()?;
    if metadata.permissions().mode() & 0o777 != PRIVATE {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(PRIVATE))?;
    }
    Ok((listener, file))
}

/// Whoever could connect sees the file go with the process.
fn bind_private(path: &Path) -> io::Result<(UnixListener, OwnFile)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // Linux gives the file the mode of the unbound socket: there is no moment at which others could open it. Where that is
    // not so, the mode is set after binding, and the check of the peer's credentials covers the time between.
    let _ = fchmod(&socket, Mode::from_raw_mode(PRIVATE));
    // Bind never follows a symbolic link at the end of the path: it is in use.
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    let file = OwnFile::new(path)?;
    listen(&socket, BACKLOG)?;
    Ok((UnixListener::from(socket), file))
}

/// Removes a socket that nobody listens on any more; everything else at `path` is an error.
async fn remove_stale(path: &Path) -> io::Result<()> {
    let in_use = |what: &str| Err(io::Error::new(io::ErrorKind::AddrInUse, what.to_owned()));
    let metadata = path.symlink_metadata()?;
    if !metadata.file_type().is_socket() {
        return in_use("something that is not a socket exists there; remove it or choose another path");
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return in_use("a socket of another user exists there; choose another path");
    }
    if is_live(path).await {
        return in_use(
            "another process listens there; use {PID} in PROFILE_RECORDER_SERVER_URL_PATTERN, one socket a process",
        );
    }
    // Moved away first: if a new server has replaced the stale socket meanwhile, it is moved back.
    let aside = aside(path);
    std::fs::rename(path, &aside)?;
    let moved = aside.symlink_metadata()?;
    if (moved.dev(), moved.ino()) != (metadata.dev(), metadata.ino()) {
        std::fs::rename(&aside, path)?;
        return in_use("another process has just begun to listen there");
    }
    std::fs::remove_file(&aside)
}

fn aside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".stale-{}", std::process::id()));
    PathBuf::from(name)
}

async fn is_live(path: &Path) -> bool {
    match UnixStream::connect(path).await {
        Err(error) => error.kind() != io::ErrorKind::ConnectionRefused,
        // A child that was forked from a dead server may still hold its socket open without listening.
        Ok(stream) => {
            match stream.peer_cred().ok().and_then(|peer| peer.pid()).and_then(rustix::process::Pid::from_raw) {
                Some(pid) => rustix::process::test_kill_process(pid) != Err(Errno::SRCH),
                None => true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn refusal(path: &Path) -> String {
        listen_at(path).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn a_socket_is_private_whatever_the_umask_and_removed_with_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let bound = listen_at(&path).await.unwrap();
        assert_eq!(path.symlink_metadata().unwrap().permissions().mode() & 0o777, PRIVATE);
        drop(bound);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let live = listen_at(&path).await.unwrap();
        assert!(refusal(&path).await.contains("another process listens there"));
        drop(live);
        let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
        assert!(names.is_empty(), "{names:?}");
    }

    #[tokio::test]
    async fn whatever_is_not_a_socket_stays() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        let dangling = dir.path().join("dangling");
        std::os::unix::fs::symlink(dir.path().join("new.sock"), &dangling).unwrap();
        for path in [&victim, &link, &dangling, &dir.path().to_owned()] {
            assert!(refusal(path).await.contains("not a socket"), "{}", path.display());
        }
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
        assert!(!dir.path().join("new.sock").exists());
        assert!(listen_at(&dir.path().join("none/a.sock")).await.is_err());
    }

    #[tokio::test]
    async fn a_socket_that_took_our_place_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let (_, file) = listen_at(&path).await.unwrap();
        let inode = path.symlink_metadata().unwrap().ino();
        std::fs::remove_file(&path).unwrap();
        // Kept open, so that the file system cannot give the new socket the old one's number.
        let _other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        if path.symlink_metadata().unwrap().ino() != inode {
            drop(file);
            assert!(path.exists());
        }
    }
}
