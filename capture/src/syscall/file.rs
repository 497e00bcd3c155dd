//! Files: opened, read and written by the system calls alone.

use super::{Errno, check, file_size_limit, number, syscall};

pub(super) const AT_SYMLINK_NOFOLLOW: usize = 0x100;
/// Reading, for `access`.
pub(super) const R_OK: usize = 4;

/// A file descriptor that closes itself.
#[derive(Debug)]
pub struct File(pub(super) i32);

impl File {
    const AT_FDCWD: isize = -100;
    /// In the place of a directory's descriptor: the working directory.
    pub const HERE: i32 = Self::AT_FDCWD as i32;
    /// Read only, close on exec.
    pub const READ: usize = 0o2_000_000;
    /// The same without waiting for whoever writes to it, if it is a pipe.
    pub const READ_AT_ONCE: usize = Self::READ | 0o4000;
    /// Read and write, close on exec.
    pub const READ_WRITE: usize = 0o2_000_002;
    /// Read and write a file that this call makes; an existing one is an error.
    pub const CREATE_NEW: usize = Self::READ_WRITE | 0o300;
    const NO_FOLLOW: usize = 0o400_000;

    /// Opens `path`, which ends with a zero byte; the last component may not be a symbolic link unless `flags` only read.
    pub fn open(path: &[u8], flags: usize) -> Result<Self, Errno> {
        if path.last() != Some(&0) {
            return Err(Errno::INVAL);
        }
        let flags = if flags & 3 == 0 { flags } else { flags | Self::NO_FOLLOW };
        // SAFETY: the path is zero-terminated and only read.
        let fd = check(unsafe {
            syscall(number::OPENAT, [Self::AT_FDCWD as usize, path.as_ptr() as usize, flags, 0o600, 0, 0])
        })?;
        Ok(Self(fd as i32))
    }

    /// Opens what the host means by `path`, from the directory that it has open as `directory`, or from its own ([`File::HERE`]). The kernel reads the path: a pointer that leads nowhere is an error.
    pub fn open_of_host(directory: i32, path: *const core::ffi::c_char, flags: usize) -> Result<Self, Errno> {
        let arguments = [directory as usize, path as usize, flags, 0, 0, 0];
        // SAFETY: the kernel checks the pointer, and only reads.
        check(unsafe { syscall(number::OPENAT, arguments) }).map(|fd| Self(fd as i32))
    }

    /// The descriptor's number.
    pub fn number(&self) -> i32 {
        self.0
    }

    /// Reads up to `buffer.len()` bytes at the file's position.
    pub fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        loop {
            // SAFETY: the kernel writes at most `len` bytes into a buffer that is ours.
            let result = check(unsafe {
                syscall(number::READ, [self.0 as usize, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0])
            });
            if result != Err(Errno::INTR) {
                return result;
            }
        }
    }

    /// Reads up to `buffer.len()` bytes at `offset`.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
        // SAFETY: as in `read`.
        check(unsafe {
            syscall(
                number::PREAD64,
                [self.0 as usize, buffer.as_mut_ptr() as usize, buffer.len(), offset as usize, 0, 0],
            )
        })
    }

    /// What the file is.
    pub fn status(&self) -> Result<Status, Errno> {
        // struct stat: st_dev, st_ino, st_nlink, st_mode and st_uid, st_gid, st_rdev, st_size at 48 of 144 bytes.
        let mut stat = [0_u64; 18];
        // SAFETY: the kernel writes one struct stat.
        check(unsafe { syscall(number::FSTAT, [self.0 as usize, stat.as_mut_ptr() as usize, 0, 0, 0, 0]) })?;
        let [_, inode, _, mode_and_user, group, _, length, ..] = stat;
        let (mode, user, group) = (mode_and_user as u32, (mode_and_user >> 32) as u32, group as u32);
        Ok(Status { inode, length, is_regular: mode & 0o170_000 == 0o100_000, mode, user, group })
    }

    /// Writes the bytes at `offset`.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize, Errno> {
        // SAFETY: the kernel only reads the bytes.
        check(unsafe {
            syscall(number::PWRITE64, [self.0 as usize, bytes.as_ptr() as usize, bytes.len(), offset as usize, 0, 0])
        })
    }

    /// Allocates the file's blocks in a range, growing the file, so that no later write to it can fail for want of space.
    pub fn allocate(&self, offset: u64, length: u64) -> Result<(), Errno> {
        // The kernel would send SIGXFSZ, which ends a process that does not expect it.
        if offset.saturating_add(length) > file_size_limit() {
            return Err(Errno::FBIG);
        }
        loop {
            // SAFETY: no memory is involved.
            let result = check(unsafe {
                syscall(number::FALLOCATE, [self.0 as usize, 0, offset as usize, length as usize, 0, 0])
            });
            if result != Err(Errno::INTR) {
                return result.map(drop);
            }
        }
    }

    /// Grows the file to `length` bytes without allocating blocks for them.
    pub fn grow(&self, length: u64) -> Result<(), Errno> {
        if length > file_size_limit() {
            return Err(Errno::FBIG);
        }
        // SAFETY: no memory is involved.
        check(unsafe { syscall(number::FTRUNCATE, [self.0 as usize, length as usize, 0, 0, 0, 0]) }).map(drop)
    }

    /// Directory entries as the kernel packs them (`struct linux_dirent64`).
    pub fn read_directory(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        // SAFETY: the kernel writes at most `len` bytes into a buffer that is ours.
        check(unsafe {
            syscall(number::GETDENTS64, [self.0 as usize, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0])
        })
    }
}

/// What [`File::status`] tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its number on its file system.
    pub inode: u64,
    /// Bytes.
    pub length: u64,
    /// Whether it is neither a directory nor a device or pipe.
    pub is_regular: bool,
    /// What it is and who may do what with it: `st_mode`.
    pub mode: u32,
    /// Who owns it.
    pub user: u32,
    /// The group that it belongs to.
    pub group: u32,
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours and closed once.
        unsafe { syscall(number::CLOSE, [self.0 as usize, 0, 0, 0, 0, 0]) };
    }
}

/// Target of a symbolic link whose path ends with a zero byte, such as `/proc/self/exe`; the bytes written to `buffer`.
pub fn read_link<'a>(path: &[u8], buffer: &'a mut [u8]) -> Result<&'a [u8], Errno> {
    if path.last() != Some(&0) {
        return Err(Errno::INVAL);
    }
    // SAFETY: the path is zero-terminated; the kernel writes at most `len` bytes into a buffer that is ours.
    let length = check(unsafe {
        syscall(
            number::READLINKAT,
            [File::AT_FDCWD as usize, path.as_ptr() as usize, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0],
        )
    })?;
    buffer.get(..length).ok_or(Errno::INVAL)
}

/// Device and inode of what is at this path, which ends with a zero byte; of a symbolic link, its own.
pub fn identity_of_file(path: &[u8]) -> Result<(u64, u64), Errno> {
    if path.last() != Some(&0) {
        return Err(Errno::INVAL);
    }
    // `struct stat` begins with the two, and is no longer than this.
    let mut stat = [0_u64; 32];
    // SAFETY: the path is zero-terminated; the kernel writes one structure.
    check(unsafe {
        syscall(
            number::NEWFSTATAT,
            [File::AT_FDCWD as usize, path.as_ptr() as usize, stat.as_mut_ptr() as usize, AT_SYMLINK_NOFOLLOW, 0, 0],
        )
    })?;
    let [device, inode, ..] = stat;
    Ok((device, inode))
}

/// Removes the file at this path, which ends with a zero byte.
pub fn remove_file(path: &[u8]) -> Result<(), Errno> {
    if path.last() != Some(&0) {
        return Err(Errno::INVAL);
    }
    // SAFETY: the path is zero-terminated and only read.
    check(unsafe { syscall(number::UNLINKAT, [File::AT_FDCWD as usize, path.as_ptr() as usize, 0, 0, 0, 0]) })?;
    Ok(())
}

/// Whether a program that the caller executes may read the file at this path, which ends with a zero byte: as whom the process acts for, with the capabilities that it then has (access(2)).
pub fn may_read(path: &[u8]) -> Result<(), Errno> {
    if path.last() != Some(&0) {
        return Err(Errno::INVAL);
    }
    // SAFETY: the path is zero-terminated and only read.
    check(unsafe { syscall(number::ACCESS, [path.as_ptr() as usize, R_OK, 0, 0, 0, 0]) }).map(drop)
}
