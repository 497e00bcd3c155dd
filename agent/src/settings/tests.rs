//! Claims about what a file may say.

use super::*;

fn read(text: &str) -> Result<Settings, Error> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    Settings::read(file.path()).and_then(Settings::complete)
}

const ALL: &str = r#"
frequency = 99
duration = "2min"
continuous = true
modes = ["cpu", "heap", "cpu"]
alloc-interval = "1MiB"
symbols = "full"
max-profile = "8MiB"
registries = ["/run/apps/profile-recorder"]
state-dir = "/var/lib/x"
listen = "127.0.0.1:9180"
labels = { env = "prod" }

[log]
format = "json"
level = "debug"

[output]
directory = "/var/log/profrec"
rotating = true
flamegraph = false
max-age = "7days"
max-size = "1GiB"

[[targets]]
names = ["redis-*"]
sockets = ["/run/apps/*.sock"]
ports = ["127.0.0.1:6060-6069"]
modes = ["wall"]
labels = { team = "shop" }

[[sinks]]
kind = "pyroscope"
url = "https://pyroscope:4040"
tenant = "t"
username = "u"
password = "hunter2"
max-queue = "64MiB"
max-age = "30min"

[[sinks]]
kind = "otlp"
name = "collector"
url = "http://127.0.0.1:4318"
timeout = 2.5
threads = true
"#;

#[test]
fn everything_can_be_said() {
    let settings = read(ALL).unwrap();
    assert_eq!((settings.frequency, settings.duration), (99, Duration::from_secs(120)));
    assert_eq!(settings.modes, [Mode::Cpu, Mode::Heap], "each once");
    assert_eq!((settings.alloc_interval, settings.max_profile), (Some(1 << 20), 8 << 20));
    let output = settings.output.as_ref().unwrap();
    assert_eq!((output.max_age, output.max_size), (Some(Duration::from_secs(7 * 86_400)), Some(1 << 30)));
    assert!(settings.targets[0].matches("redis-server") && !settings.targets[0].matches("redis"));
    let [pyroscope, otlp] = &settings.sinks[..] else { panic!("{:?}", settings.sinks) };
    assert_eq!(
        (pyroscope.name.as_str(), pyroscope.max_queue, pyroscope.max_age.as_secs()),
        ("pyroscope", 64 << 20, 1800)
    );
    assert_eq!((otlp.name.as_str(), otlp.timeout, otlp.threads), ("collector", Duration::from_millis(2500), true));
    assert!(!format!("{settings:?}").contains("hunter2"));
}

#[test]
fn a_mistake_is_told_with_its_line_and_without_what_stands_there() {
    for (change, by, said) in [
        ("frequency = 99", "frequenzy = 99", ":2: unknown field `frequenzy`"),
        ("frequency = 99", "frequency = 0", "frequency 0 is not from 1 to 10000"),
        ("\"2min\"", "\"soon\"", ":3: 'soon' is no time"),
        ("\"2min\"", "0", "duration must be from 1 second"),
        ("\"heap\", \"cpu\"]", "\"heep\"]", "no mode is named 'heep'; there are cpu, wall, offcpu, allocs, heap"),
        ("\"1MiB\"", "\"1XB\"", "'1XB': it must be a number of bytes"),
        ("\"8MiB\"", "0.5", "0.5 is no number of bytes"),
        ("6060-6069", "6069-6060", "is not HOST:PORT"),
        ("\"/run/apps/*.sock\"", "\"apps/*.sock\"", "not an absolute path"),
        ("\"/var/log/profrec\"", "\"\"", "[output] needs a directory"),
        ("kind = \"otlp\"", "kind = \"parka\"", "unknown variant `parka`"),
        ("\"collector\"", "\"a/b\"", "may have letters, digits"),
        ("name = \"collector\"", "name = \"pyroscope\"", "two sinks are named 'pyroscope'"),
        ("https://pyroscope:4040", "https://u:hunter2@pyroscope", "without user"),
        ("https://pyroscope:4040", "pyroscope:4040", "must be http://HOST"),
        ("username = \"u\"", "token = \"hunter2\"", "needs a username and a password"),
        ("password = \"hunter2\"", "password = \"hunter2\"\npassword-file = \"/x\"", "a secret is given twice"),
        ("password = \"hunter2\"", "password-file = \"/none\"", "cannot read the secret in '/none'"),
        ("password = \"hunter2\"", "password = 7 # hunter2", "invalid type"),
        ("timeout = 2.5", "timeout = 0", "max-samples and timeout must be more than 0"),
    ] {
        assert!(ALL.contains(change), "{change}");
        let error = read(&ALL.replace(change, by)).unwrap_err();
        assert!(error.line().contains(said), "{by}: {error}");
        assert!(!error.line().contains("hunter2") && !error.line().contains('\n'), "{error}");
    }
    assert!(read("").unwrap_err().line().contains("profiles would go nowhere"));
    assert_eq!(Settings::read(Path::new("/none")).unwrap_err().exit_code(), 1);
}

#[test]
fn a_sink_can_be_named_on_the_command_line() {
    let sink: SinkSettings = "otlp=http://a=b".parse().unwrap();
    assert_eq!((sink.kind, sink.url.as_str()), (Kind::Otlp, "http://a=b"));
    for text in ["", "otlp", "otlp=", "kafka=x"] {
        assert!(text.parse::<SinkSettings>().is_err(), "{text}");
    }
}
