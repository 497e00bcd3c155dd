//! Large programs that nobody here wrote, with threads, processes and languages of their own: they print and end the same with and without the recorder, nobody waits
//! forever, and what they did is in the profile.
//!
//! CPython's own tests, whole, take five minutes: `cargo test -p profile-recorder-tests --test real_programs -- --ignored`

use profile_recorder_tests::{folded, output, place_program, profrec, programs, run, scratch, text};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const MODES: [&str; 2] = ["allocs,cpu", "heap"];

/// Runs a command without and with the recorder, `before` each time; compares what it prints and how it ends. At most `lost` of a thousand may be missing.
fn assert_same(command: &[&str], before: impl Fn(), see: impl Fn(&str) -> String) {
    let plain = |command: &mut Command| {
        before();
        let ended = output(command);
        (see(&text(&ended.stdout)), ended.status.code(), text(&ended.stderr))
    };
    let (printed, code, complaints) = plain(Command::new(command[0]).args(&command[1..]));
    assert!(code.is_some_and(|code| code < 100), "{command:?} does not run here: {printed}{complaints}");
    let directory = scratch();
    for mode in MODES {
        let profile = directory.path().join("p.folded");
        let mut arguments = vec!["record", "--quiet", "--mode", mode, "-o", profile.to_str().unwrap(), "--"];
        arguments.extend(command);
        let recorded = plain(&mut programs::limited(&arguments));
        assert_eq!((&recorded.0, recorded.1), (&printed, code), "{command:?}, mode {mode}: {}", recorded.2);
        assert_recorded(&profile, mode);
    }
    let counts = directory.path().join("counts");
    let mut arguments = vec!["stat", "-o", counts.to_str().unwrap(), "--"];
    arguments.extend(command);
    let counted = plain(&mut programs::limited(&arguments));
    assert_eq!((&counted.0, counted.1), (&printed, code), "{command:?}, stat: {}", counted.2);
}

/// There is something in the profile of each mode, and at most a thousandth of it is lost.
fn assert_recorded(profile: &Path, modes: &str) {
    for mode in modes.split(',') {
        let profile = programs::beside(profile, mode, modes);
        let (all, lost) = (folded::sum(&profile, ""), folded::sum(&profile, "[lost: "));
        assert!(all > 0 && lost <= all / 1000, "{}: {lost} lost of {all}", profile.display());
    }
}

fn source(directory: &Path, name: &str, content: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

fn as_it_is(text: &str) -> String {
    text.to_owned()
}

#[test]
fn a_java_machine_compiles_and_runs_a_program_with_threads() {
    let directory = scratch();
    let program = "import java.util.*; import java.util.stream.*;\n\
        public class Work { public static void main(String[] arguments) throws Exception {\n\
        Map<String, Integer> map = new TreeMap<>();\n\
        for (int i = 0; i < 20000; i++) map.merge(\"k\" + i % 100, i, Integer::sum);\n\
        Thread[] threads = new Thread[4]; int[] sums = new int[4];\n\
        for (int i = 0; i < 4; i++) { int k = i; threads[i] = new Thread(() -> {\n\
        for (int j = 0; j < 50000; j++) sums[k] += Integer.toString(j).length(); }); threads[i].start(); }\n\
        for (Thread thread : threads) thread.join();\n\
        Process child = new ProcessBuilder(\"echo\", \"child\").start();\n\
        System.out.print(new String(child.getInputStream().readAllBytes()));\n\
        try { deep(0); } catch (StackOverflowError e) { System.out.println(\"overflow\"); }\n\
        try { ((Object) null).hashCode(); } catch (NullPointerException e) { System.out.println(\"null\"); }\n\
        System.gc();\n\
        System.out.println(map.get(\"k7\") + Arrays.toString(sums) + IntStream.range(0, 1000).parallel().sum());\n\
        System.exit(7); }\n\
        static int deep(int n) { return deep(n + 1) + 1; } }\n";
    let file = source(directory.path(), "Work.java", program);
    assert_same(&["java", &file], || (), as_it_is);
}

#[test]
fn ruby_parses_starts_threads_and_forks() {
    let directory = scratch();
    let program = "require 'json'\n\
        list = (0...3000).map { |i| { 'id' => i, 'name' => \"n#{i}\", 'list' => [i] * 5 } }\n\
        text = JSON.generate(list); puts JSON.parse(text).size, text.size\n\
        queue = Queue.new\n\
        4.times.map { |k| Thread.new { 2000.times { |i| queue << \"#{k}-#{i}\" } } }.each(&:join)\n\
        fibers = 50.times.map { |i| Fiber.new { Fiber.yield i.to_s; [i] * 10 } }\n\
        puts queue.size, fibers.map(&:resume).join, fibers.map(&:resume).size\n\
        children = 4.times.map { |k| fork { exit!((0..2000).map(&:to_s).size == 2001 ? k : 99) } }\n\
        puts children.map { |child| Process.wait2(child)[1].exitstatus }.inspect\n\
        puts IO.popen(['echo', 'child'], &:read)\n\
        trap('USR1') { puts 'signal' }; Process.kill('USR1', Process.pid); sleep 0.01\n\
        GC.start; GC.compact; exit 5\n";
    let file = source(directory.path(), "work.rb", program);
    assert_same(&["ruby", &file], || (), as_it_is);
}

#[test]
fn cargo_builds_a_program_that_runs() {
    let directory = scratch();
    let crate_directory = directory.path().join("greeter");
    std::fs::create_dir_all(crate_directory.join("src")).unwrap();
    let manifest = "[package]\nname = \"greeter\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n";
    let manifest = source(&crate_directory, "Cargo.toml", manifest);
    let build = "fn main() { println!(\"cargo:rustc-env=ANSWER={}\", (1..=6).product::<u32>()); }\n";
    source(&crate_directory, "build.rs", build);
    let main = "use std::collections::BTreeMap;\nfn main() { let m: BTreeMap<_, _> = (0..9).map(|i| (i, env!(\"ANSWER\"))).collect(); print!(\"{}\", m[&3]); }\n";
    source(&crate_directory, "src/main.rs", main);
    let target = directory.path().join("target");
    let target_directory = target.to_str().unwrap();
    let built = target.join("debug/greeter");
    let before = || drop(std::fs::remove_dir_all(&target));
    let script = "\"$1\" build --quiet --offline --manifest-path \"$2\" --target-dir \"$3\" && \"$3/debug/greeter\"";
    let command = ["env", "-u", "RUSTFLAGS", "sh", "-c", script, "sh", env!("CARGO"), &manifest, target_directory];
    assert_same(&command, before, |printed| {
        assert_eq!(printed, "720");
        printed.to_owned()
    });
    assert!(built.exists());
}

#[test]
fn chromium_renders_a_page() {
    let directory = scratch();
    let page = "<html><body><ul id=list></ul><script>\n\
        for (let i = 0; i < 300; i++) { const e = document.createElement('li'); e.textContent = 'item ' + i * i; \
        document.getElementById('list').appendChild(e); }\n\
        document.title = getComputedStyle(document.body).display + new Intl.NumberFormat('de').format(1234567);\n\
        </script></body></html>\n";
    let url = format!("file://{}", source(directory.path(), "page.html", page));
    let data = format!("--user-data-dir={}", directory.path().join("data").display());
    let command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", &data, "--dump-dom", &url];
    assert_same(
        &command,
        || (),
        |document| {
            assert!(document.contains("item 89401") && document.contains("<title>block1.234.567"), "{document}");
            document.to_owned()
        },
    );
}

/// What ends a server that a failed test leaves behind.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

fn wait_until(what: &str, mut true_at_last: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !true_at_last() {
        assert!(Instant::now() < deadline, "{what} in a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn nginx_serves_while_it_is_loaded_reloaded_and_ended() {
    let directory = scratch();
    let root = directory.path();
    // Its workers are another user's.
    std::fs::set_permissions(root, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir(root.join("pages")).unwrap();
    let page: String = (0..3000).map(|i| format!("line {i}\n")).collect();
    source(&root.join("pages"), "page.txt", &page);
    for mode in ["allocs,cpu", "heap"] {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let configuration = format!(
            "daemon off; worker_processes 2; pid nginx.pid; error_log stderr error; events {{ worker_connections 256; }}\n\
             http {{ access_log off; gzip on; gzip_types *; gzip_min_length 1; client_body_temp_path a; \
             proxy_temp_path b; fastcgi_temp_path c; uwsgi_temp_path d; scgi_temp_path e; \
             server {{ listen 127.0.0.1:{port}; root {}/pages; }} }}\n",
            root.display()
        );
        let configuration = source(root, "nginx.conf", &configuration);
        let profile = root.join("p.folded");
        let arguments = ["record", "--quiet", "--mode", mode, "-o", profile.to_str().unwrap(), "--"];
        let mut command = run(&arguments);
        let server = command.args(["/usr/sbin/nginx", "-p", root.to_str().unwrap(), "-c", &configuration]).spawn();
        let mut server = Server(server.unwrap());
        let url = format!("http://127.0.0.1:{port}/page.txt");
        let fetch = || output(Command::new("curl").args(["--silent", "--compressed", &url]));
        wait_until("nginx serves", || fetch().status.success());
        for options in [["-k", "-H", "Accept-Encoding: gzip"], ["-k", "-H", "Accept: */*"]] {
            let load = output(Command::new("ab").args(["-q", "-n", "2000", "-c", "8"]).args(options).arg(&url));
            let told = text(&load.stdout);
            let of = |name: &str| told.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            assert_eq!((of("Complete requests:"), of("Failed requests:")), (Some("2000"), Some("0")), "{told}");
            assert_eq!(of("Non-2xx responses:"), None, "{told}");
        }
        let master = std::fs::read_to_string(root.join("nginx.pid")).unwrap();
        let signal = |name: &str| assert!(Command::new("kill").args([name, master.trim()]).status().unwrap().success());
        signal("-HUP");
        for _ in 0..20 {
            assert_eq!(text(&fetch().stdout), page, "mode {mode}");
        }
        signal("-QUIT");
        assert_eq!(server.0.wait().unwrap().code(), Some(0), "mode {mode}");
        assert_recorded(&profile, mode);
        let allocs = programs::beside(&profile, "allocs", mode);
        assert!(mode == "heap" || folded::sum(&allocs, "") > 4000, "every answer takes memory");
    }
}

/// PostgreSQL does not run as root.
fn as_postgres(directory: &Path) -> Vec<String> {
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755)).unwrap();
    if is_root() {
        let id = |flag| text(&output(Command::new("id").args([flag, "postgres"])).stdout).trim().parse().unwrap();
        chown(directory, Some(id("-u")), Some(id("-g"))).unwrap();
        ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"].map(String::from).to_vec()
    } else {
        vec!["env".into()]
    }
}

fn is_root() -> bool {
    text(&output(Command::new("id").arg("-u")).stdout).trim() == "0"
}

fn postgres_programs() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let directory = versions.map(|version| version.path().join("bin")).find(|path| path.join("initdb").exists());
    directory.expect("apt-get install postgresql")
}

/// Debits and credits of four clients agree in three tables.
#[test]
fn postgres_keeps_its_books_under_pgbench() {
    let script = "set -e; export HOME=$1 PATH=$2:$PATH PGHOST=$1; unset XDG_RUNTIME_DIR XDG_CACHE_HOME; cd $1; d=$1; shift 2\n\
        initdb -D $d/data -A trust --no-sync >/dev/null\n\
        \"$@\" postgres -D $d/data -k $d -c listen_addresses= -c fsync=off 2>$d/log & server=$!\n\
        for i in $(seq 600); do pg_isready -q && break; sleep 0.1; done\n\
        pgbench -q -i -s 1 postgres 2>/dev/null >/dev/null\n\
        pgbench -c 4 -t 200 postgres 2>/dev/null | grep -E 'actually|failed'\n\
        psql -At postgres -c 'select count(*), sum(delta) from pgbench_history' >$d/history\n\
        for table in account teller branche; do \
        psql -At postgres -c \"select 800, sum($(echo $table | cut -c1)balance) from pgbench_${table}s\" | \
        cmp - $d/history && echo $table agrees; done\n\
        kill -INT $(head -n 1 $d/data/postmaster.pid); wait $server || echo ended with $?\n\
        grep -E 'PANIC|ERROR|by signal|terminating any other|corrupt' $d/log || true; rm -r $d/data\n";
    let directory = scratch();
    let root = directory.path();
    let user = as_postgres(root);
    let copied = root.join("profrec");
    // The executable's own directory may be closed to the other user.
    place_program(profrec(), &copied);
    let programs_directory = postgres_programs();
    let (home, path) = (root.to_str().unwrap(), programs_directory.to_str().unwrap());
    let profile = root.join("p.folded");
    let run = |recorder: &[&str]| {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", "120"]).args(&user).args(["sh", "-c", script, "sh", home, path]);
        let ended = output(command.args(recorder).current_dir("/"));
        assert_eq!(ended.status.code(), Some(0), "{}{}", text(&ended.stdout), text(&ended.stderr));
        text(&ended.stdout)
    };
    let plain = run(&["env"]);
    assert!(plain.contains("processed: 800/800") && plain.contains("account agrees\nteller agrees\nbranche agrees\n"));
    for mode in MODES {
        let output = profile.to_str().unwrap();
        let recorder = [copied.to_str().unwrap(), "record", "--quiet", "--mode", mode, "-o", output, "--"];
        assert_eq!(run(&recorder), plain, "mode {mode}");
        assert_recorded(&profile, mode);
    }
}

/// The same commands leave the same data.
#[test]
fn redis_holds_the_same_data() {
    let directory = scratch();
    let (socket, profile) = (directory.path().join("redis.sock"), directory.path().join("p.folded"));
    let socket = socket.to_str().unwrap();
    let script = "local s = 7; local function r(n) s = (s * 1103515245 + 12345) % 2147483648; return math.floor(s / 65536) % n end \
        for i = 1, 20000 do local k, c = r(2000), r(5) \
        if c == 0 then redis.call('set', 's' .. k, string.rep('v', r(300))) elseif c == 1 then redis.call('lpush', 'l' .. k, i) \
        elseif c == 2 then redis.call('hset', 'h' .. k, 'f' .. r(50), i) elseif c == 3 then redis.call('zadd', 'z' .. k, i, 'm' .. i) \
        else redis.call('del', 's' .. k) end end return redis.call('dbsize')";
    let ask = |question: &[&str]| text(&output(Command::new("redis-cli").args(["-s", socket]).args(question)).stdout);
    let digest = |command: &mut Command| {
        let options = ["--port", "0", "--save", "", "--appendonly", "no", "--enable-debug-command", "yes"];
        let server = command.args(options).args(["--unixsocket", socket]).stdout(std::process::Stdio::null()).spawn();
        let mut server = Server(server.unwrap());
        wait_until("redis-server answers", || ask(&["ping"]) == "PONG\n");
        let keys = ask(&["eval", script, "0"]);
        assert!(keys.trim().parse::<u32>().is_ok_and(|keys| keys > 3000), "{keys}");
        let digest = ask(&["debug", "digest"]);
        ask(&["shutdown", "nosave"]);
        assert_eq!(server.0.wait().unwrap().code(), Some(0));
        digest
    };
    let plain = digest(&mut Command::new("redis-server"));
    assert_eq!(plain.trim().len(), 40, "{plain}");
    for mode in MODES {
        let record = ["record", "--quiet", "--mode", mode, "-o", profile.to_str().unwrap(), "--", "redis-server"];
        assert_eq!(digest(&mut run(&record)), plain, "mode {mode}");
        assert_recorded(&profile, mode);
    }
}

/// Runs tests of CPython's own; each prints its name and how it ended.
fn assert_tests_end_as_before(modules: &[&str], only: &[&str]) {
    let python = programs::python();
    let installed = output(Command::new(&python).args(["-c", "import test.test_threading"])).status.success();
    assert!(installed, "apt-get install libpython3-testsuite");
    let mut command = vec![python.as_str(), "-m", "test", "-v"];
    command.extend(only.iter().flat_map(|pattern| ["-m", pattern]));
    command.extend(modules);
    // A test's line is its name and its outcome; what the test itself prints may stand between them.
    assert_same(
        &command,
        || (),
        |printed| {
            let outcomes = ["ok", "FAIL", "ERROR", "skipped"];
            let ended = |line: &&str| outcomes.iter().any(|o| line.ends_with(o)) || line.contains("... skipped");
            let mut lines: Vec<&str> = printed.lines().filter(ended).collect();
            lines.sort_unstable();
            assert!(!lines.is_empty(), "{printed}");
            lines.join("\n")
        },
    );
}

#[test]
fn python_passes_its_own_tests_of_memory_threads_and_processes() {
    assert_tests_end_as_before(
        &["test_gc", "test_threading", "test_subprocess"],
        &[
            "GCTests",
            "GCTogglingTests",
            "GCCallbackTests",
            "ThreadJoinOnShutdown",
            "test_call*",
            "test_preexec*",
            "test_close_fds*",
        ],
    );
}

#[test]
#[ignore = "takes minutes"]
fn python_passes_all_of_its_own_tests_of_memory_threads_and_processes() {
    for module in ["test_gc", "test_threading", "test_subprocess"] {
        assert_tests_end_as_before(&[module], &[]);
    }
}
