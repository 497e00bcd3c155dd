//! Builds the preload library and puts it where `preload.rs` embeds it from; and finds out what commit this is.
//!
//! The library is a package of its own with a profile of its own, so it is built by a cargo of its own, into a target directory of its own.
//! `PROFREC_PRELOAD_LIBRARY=/path/to.so` names a ready-made one instead. `PROFREC_COMMIT` names the commit of sources that lie in no repository.

use sha2::{Digest, Sha256};
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

const READY_MADE: &str = "PROFREC_PRELOAD_LIBRARY";
const COMMIT: &str = "PROFREC_COMMIT";
const PACKAGE: &str = "profile-recorder-preload";
const FILE: &str = "libprofrec_preload.so";
/// Packages that end up in the library, by folder.
const SOURCES: &[&str] = &["preload", "recorder", "alloc-hook", "capture", "unwind", "layout", "profile", "symbolize"];

fn main() {
    println!("cargo::rerun-if-env-changed={READY_MADE}");
    println!("cargo::rerun-if-changed=build.rs");
    let library = match env::var_os(READY_MADE) {
        // Relative to the directory of this package.
        Some(path) => {
            let library = variable("CARGO_MANIFEST_DIR").join(path);
            println!("cargo::rerun-if-changed={}", library.display());
            library
        }
        // Its sources are watched. What this script writes itself is always newer than the script's start, and would be a reason to run again every time.
        None => build(),
    };
    let bytes = std::fs::read(&library).unwrap_or_else(|e| panic!("cannot read {}: {e}", library.display()));
    let hash: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    println!("cargo::rustc-env=PROFREC_PRELOAD_PATH={}", library.display());
    println!("cargo::rustc-env=PROFREC_PRELOAD_SHA256={hash}");
    println!("cargo::rustc-env=PROFREC_VERSION={}", version());
}

/// The version, with the commit if there is one to tell.
fn version() -> String {
    println!("cargo::rerun-if-env-changed={COMMIT}");
    let version = env::var("CARGO_PKG_VERSION").expect("cargo sets CARGO_PKG_VERSION");
    match env::var(COMMIT).ok().filter(|commit| !commit.is_empty()).or_else(commit) {
        Some(commit) => format!("{version} ({commit})"),
        None => version,
    }
}

/// The commit that is checked out, if these sources are a repository of their own and not a part of somebody else's.
fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).current_dir(workspace()).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let root = PathBuf::from(git(&["rev-parse", "--show-toplevel"])?);
    if root.canonicalize().ok()? != workspace().canonicalize().ok()? {
        return None;
    }
    // Changes with every commit and every checkout.
    let log = workspace().join(git(&["rev-parse", "--git-path", "logs/HEAD"])?);
    if log.exists() {
        println!("cargo::rerun-if-changed={}", log.display());
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn workspace() -> PathBuf {
    variable("CARGO_MANIFEST_DIR").parent().expect("the package has a parent directory").to_owned()
}

fn build() -> PathBuf {
    let workspace = workspace();
    let manifest = workspace.join("Cargo.toml");
    assert!(
        workspace.join("preload/src/lib.rs").exists(),
        "the sources of the preload library are not in {}: build profrec inside its repository, or name a ready-made library in {READY_MADE}",
        workspace.display()
    );
    watch(&workspace);
    // What is recorded are the system's programs, whatever this executable is linked with itself.
    let target = env::var("TARGET").expect("cargo sets TARGET").replace("-musl", "-gnu");
    // One for all profiles of this package: the library is the same. The output directory is `TARGET/PROFILE/build/PACKAGE/out`.
    let out = variable("OUT_DIR");
    let target_dir = out.ancestors().nth(4).unwrap_or(&out).join("preload-library");
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .args(["build", "--quiet", "--package", PACKAGE, "--profile", "preload", "--target", &target])
        .arg("--manifest-path")
        .arg(&manifest)
        .arg("--target-dir")
        .arg(&target_dir);
    // What the outer cargo was told is not meant for the library: sanitizers, coverage, clippy's wrapper, denied warnings.
    env::vars_os().map(|(name, _)| name).filter(leaks).for_each(|name| {
        cargo.env_remove(name);
    });
    // Tests read its code, by names that tell the instances of a generic function apart, and by lines.
    cargo
        .env("CARGO_PROFILE_PRELOAD_STRIP", "none")
        .env("CARGO_PROFILE_PRELOAD_DEBUG", "line-tables-only")
        .env("RUSTFLAGS", "-C symbol-mangling-version=v0");
    let status = cargo.status().unwrap_or_else(|e| panic!("cannot run {cargo:?}: {e}"));
    assert!(status.success(), "building the preload library failed ({status}): {cargo:?}");
    strip(&target_dir.join(target).join("preload").join(FILE), &target_dir.join(FILE))
}

/// Leaves out what only tests need, if the linker's companion is there: the library works as well with it.
fn strip(whole: &Path, stripped: &Path) -> PathBuf {
    let new = stripped.with_extension(format!("so.{}", std::process::id()));
    match Command::new("strip").arg("--strip-all").arg("-o").arg(&new).arg(whole).status() {
        Ok(status) if status.success() => {
            replace(&new, stripped);
            stripped.to_owned()
        }
        failed => {
            println!("cargo::warning=the preload library keeps its symbols: strip: {failed:?}");
            whole.to_owned()
        }
    }
}

/// Puts a file in the place of one with other content. Where the content is the same, the one that is there stays: whatever was built with it need not be built anew, as each profile of this package
/// would have the others be.
fn replace(new: &Path, old: &Path) {
    let is_same = matches!((std::fs::read(new), std::fs::read(old)), (Ok(new), Ok(old)) if new == old);
    let result = if is_same { std::fs::remove_file(new) } else { std::fs::rename(new, old) };
    result.unwrap_or_else(|e| panic!("cannot put {} in the place of {}: {e}", new.display(), old.display()));
}

/// Tells cargo to run this script again when anything changes that the library is made of.
fn watch(workspace: &Path) {
    let inside = SOURCES
        .iter()
        .flat_map(|folder| [format!("{folder}/src"), format!("{folder}/Cargo.toml"), format!("{folder}/build.rs")]);
    let files = inside.chain(["Cargo.toml", "Cargo.lock", "rust-toolchain.toml"].map(str::to_owned));
    for path in files.map(|file| workspace.join(file)).filter(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

/// Whether a variable of this script's environment would change how the library is built.
fn leaks(name: &OsString) -> bool {
    let Some(name) = name.to_str() else { return false };
    let exact =
        ["RUSTFLAGS", "RUSTDOCFLAGS", "RUSTC_WORKSPACE_WRAPPER", "CLIPPY_ARGS", "OUT_DIR", "TARGET", "HOST", "PROFILE"];
    let prefixes = [
        "CARGO_BIN_",
        "CARGO_BUILD_",
        "CARGO_CFG_",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_FEATURE_",
        "CARGO_INCREMENTAL",
        "CARGO_MANIFEST_",
        "CARGO_PKG_",
        "CARGO_PROFILE_",
        "CARGO_TARGET_DIR",
        "DEP_",
    ];
    let flags_of_target = name.starts_with("CARGO_TARGET_") && name.ends_with("_RUSTFLAGS");
    exact.contains(&name) || flags_of_target || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

fn variable(name: &str) -> PathBuf {
    env::var_os(name).unwrap_or_else(|| panic!("cargo sets {name}")).into()
}
