//! The recipe for pull requests (`examples/ci/allocations.sh`) on real commits of a Rust crate and of a C program.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Place, Ran, text};

/// A program with three commits: as it is, one allocation more in its loop, and the same program under other names and on other lines.
struct Program {
    place: Place,
    file: &'static str,
    build: &'static str,
    run: &'static str,
}

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/ci");

impl Program {
    fn new(
        folder: &str,
        file: &'static str,
        build: &'static str,
        run: &'static str,
        more: [&str; 2],
        old_name: &str,
        new_name: &str,
    ) -> Self {
        let program = Self { place: Place::new(), file, build, run };
        copy(&Path::new(EXAMPLES).join(folder), &program.repository());
        program.git(&["init", "--quiet", "--initial-branch=main"]);
        program.commit("base");
        let as_it_is = text(program.source());
        program.change(&as_it_is, "more", &as_it_is.replacen(more[0], more[1], 1));
        program.change(&as_it_is, "renamed", &format!("\n\n\n{}", as_it_is.replace(old_name, new_name)));
        program.git(&["checkout", "--quiet", "main"]);
        program
    }

    fn repository(&self) -> PathBuf {
        self.place.path("repository")
    }

    fn source(&self) -> PathBuf {
        self.repository().join(self.file)
    }

    fn change(&self, before: &str, branch: &str, after: &str) {
        assert_ne!(before, after, "the example has changed: nothing to replace");
        self.git(&["checkout", "--quiet", "-b", branch, "main"]);
        fs::write(self.source(), after).unwrap();
        self.commit(branch);
    }

    fn commit(&self, message: &str) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message", message]);
    }

    fn git(&self, arguments: &[&str]) {
        let mut git = Command::new("git");
        git.current_dir(self.repository()).args([
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@localhost",
            "-c",
            "commit.gpgsign=false",
        ]);
        let output = git.args(arguments).output().unwrap();
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Runs the recipe with `head` against `main`. Returns how it went, and the comment.
    fn compare(&self, head: &str) -> (Ran, String) {
        let mut command = self.place.command(&[]);
        let mut script = Command::new(format!("{EXAMPLES}/allocations.sh"));
        script.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        // The toolchain's own files are the user's, not the test's.
        for name in ["HOME", "LD_PRELOAD", "CARGO_TARGET_DIR", "LD_LIBRARY_PATH"] {
            match std::env::var_os(name).filter(|_| name == "HOME") {
                Some(home) => script.env(name, home),
                None => script.env_remove(name),
            };
        }
        let _ = &mut command;
        let out = self.place.path(&format!("out-{head}"));
        script.env("PROFREC", env!("CARGO_BIN_EXE_profrec")).env("OUT", &out).env("BUILD", self.build);
        script.current_dir(self.repository()).args(["main", head, "--", self.run]);
        let ran = Ran::of(script.output().unwrap());
        let comment = fs::read_to_string(out.join("comment.md")).unwrap_or_else(|e| panic!("{e}: {}", ran.stderr));
        let trees = Command::new("git").args(["worktree", "list"]).current_dir(self.repository()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&trees.stdout).lines().count(), 1, "a tree is left");
        (ran, comment)
    }

    fn check(&self, function: &str, line: u32) {
        let (ran, comment) = self.compare("more");
        ran.assert_code(3);
        assert!(comment.starts_with("<!-- profile-recorder-diff:allocations -->\n"), "{comment}");
        assert!(comment.contains("**Limit exceeded: allocs +1,000 ("), "{comment}");
        let place = format!("{function} ({}:{line})", self.file).replace('_', "&#95;");
        let blamed =
            comment.lines().find(|line| line.starts_with("- **+1,000 (")).unwrap_or_else(|| panic!("{comment}"));
        assert!(blamed.contains(&place), "'{place}' is not in: {blamed}");
        for same in ["main", "renamed"] {
            let (ran, comment) = self.compare(same);
            ran.assert_code(0);
            assert!(comment.contains("**No change**"), "{same}: {comment}");
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            if entry.file_name() != "target" {
                copy(&entry.path(), &target);
            }
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn one_more_allocation_in_a_loop_of_a_rust_crate_is_blamed_on_its_line_and_nothing_else_is() {
    let more =
        ["    Some(Order { item", "    let _copy = std::hint::black_box(line.to_owned());\n    Some(Order { item"];
    let program = Program::new(
        "orders",
        "src/main.rs",
        "cargo build --release --quiet --offline",
        "target/release/orders",
        more,
        "parse_line",
        "read_order",
    );
    program.check("orders::parse_line", 11);
}

#[test]
fn one_more_allocation_in_a_loop_of_a_c_program_is_blamed_on_its_line_and_nothing_else_is() {
    let more = ["    size_t letters = strlen(word);", "    free(strdup(word));\n    size_t letters = strlen(word);"];
    let program =
        Program::new("words", "words.c", "gcc -g -O2 words.c -o words", "./words", more, "measure", "letters_of");
    program.check("measure", 10);
}

#[test]
fn a_failed_build_is_not_taken_for_a_limit() {
    let place = Place::new();
    let mut script = Command::new(format!("{EXAMPLES}/allocations.sh"));
    let ran = Ran::of(script.current_dir(place.path("")).args(["main"]).output().unwrap());
    ran.assert_code(2);
    let more = ["    size_t", "    free(strdup(text));\n    size_t"];
    let program = Program::new("words", "words.c", "exit 3", "./words", more, "measure", "letters_of");
    let mut script = Command::new(format!("{EXAMPLES}/allocations.sh"));
    script.env("BUILD", "exit 3").env("OUT", program.place.path("out")).current_dir(program.repository());
    let ran = Ran::of(script.args(["main", "more", "--", "./words"]).output().unwrap());
    ran.assert_code(1);
    assert!(ran.stderr.contains("the build of base (main) failed"), "{}", ran.stderr);
}
