use std::collections::HashMap;

use super::*;

type Variables<'a> = &'a [(&'a str, &'a str)];

fn parse(variables: Variables<'_>) -> (Config, Vec<String>) {
    let variables: HashMap<_, _> = variables.iter().copied().collect();
    let (config, mistakes) = Config::parse(&Surroundings {
        variable: &|name| variables.get(name).map(OsString::from),
        file: &|path| match path.to_str() {
            Some("/run/token") => Ok("from-file\n".to_owned()),
            Some("/run/empty") => Ok("\n".to_owned()),
            _ => Err(io::Error::new(io::ErrorKind::NotFound, "no such file")),
        },
        pid: 42,
        exe: &|| "service".to_owned(),
        uuid: &|| "UU-ID".to_owned(),
        directory: &|| Some(PathBuf::from("/begun/here")),
    });
    (config, mistakes.iter().map(Mistake::to_string).collect())
}

#[test]
fn an_empty_environment_asks_for_nothing() {
    for variables in [&[][..], &[(variable::SERVER_URL, ""), (variable::SERVER_URL_PATTERN, ""), (variable::HZ, "")]] {
        let (config, mistakes) = parse(variables);
        assert!(mistakes.is_empty(), "{mistakes:?}");
        assert!(config.address.is_none() && config.token.is_none() && config.output.is_none());
        assert_eq!(config.alloc_interval, AllocInterval::Bytes(NonZeroU64::new(524_288).unwrap()));
        assert_eq!((config.mode, config.hz, config.log), (Mode::Cpu, 99, LogLevel::Warn));
    }
}

#[test]
fn the_address_comes_from_the_url_or_else_from_the_pattern() {
    let cases: [(Variables<'_>, &str); 5] = [
        (&[(variable::SERVER_URL, "unix:///tmp/a.sock")], "unix:///tmp/a.sock"),
        (&[(variable::SERVER_URL_PATTERN, "unix:///tmp/{PID}-{UUID}.sock")], "unix:///tmp/42-UU-ID.sock"),
        (&[(variable::SERVER_URL_PATTERN, "http+unix://%2Ftmp%2F{PID}.sock")], "unix:///tmp/42.sock"),
        (&[(variable::SERVER_URL, "http://127.0.0.1:1"), (variable::SERVER_URL_PATTERN, "junk")], "http://127.0.0.1:1"),
        (&[(variable::SERVER_URL, ""), (variable::SERVER_URL_PATTERN, "http://127.0.0.1:2")], "http://127.0.0.1:2"),
    ];
    for (variables, expected) in cases {
        let (config, mistakes) = parse(variables);
        assert_eq!(mistakes, Vec::<String>::new());
        assert_eq!(config.address.unwrap().to_string(), expected);
    }
}

#[test]
fn the_token_comes_from_the_variable_or_from_a_file() {
    let (config, mistakes) = parse(&[(variable::TOKEN, "secret")]);
    assert!(mistakes.is_empty() && config.token.unwrap().is(b"secret"));
    let (config, mistakes) = parse(&[(variable::TOKEN_FILE, "/run/token")]);
    assert!(mistakes.is_empty() && config.token.unwrap().is(b"from-file"));
}

#[test]
fn the_other_variables_are_read() {
    let (config, mistakes) = parse(&[
        (variable::ALLOC_INTERVAL, "1"),
        (variable::OUTPUT, "/tmp/{EXE}-{PID}.pb.gz"),
        (variable::MODE, "heap"),
        (variable::HZ, "997"),
        (variable::LOG, "debug"),
    ]);
    assert_eq!(mistakes, Vec::<String>::new());
    assert_eq!(config.alloc_interval, AllocInterval::Bytes(NonZeroU64::MIN));
    assert_eq!(config.output.unwrap(), Path::new("/tmp/service-42.pb.gz"));
    assert_eq!((config.mode, config.hz, config.log), (Mode::Heap, 997, LogLevel::Debug));
    assert_eq!(parse(&[(variable::ALLOC_INTERVAL, "off")]).0.alloc_interval, AllocInterval::Off);
}

#[test]
fn each_mistake_is_one_line_that_names_variable_value_and_what_is_needed() {
    let cases: [(Variables<'_>, &[&str]); 16] = [
        (&[(variable::SERVER_URL, "junk")], &["PROFILE_RECORDER_SERVER_URL=\"junk\": not a URL"]),
        (&[(variable::SERVER_URL, "unix:///a\nb/")], &["PROFILE_RECORDER_SERVER_URL=\"unix:///a\\nb/\"", "directory"]),
        (&[(variable::SERVER_URL, "unix:///tmp/{PID}")], &["replaced in PROFILE_RECORDER_SERVER_URL_PATTERN only"]),
        (&[(variable::SERVER_URL_PATTERN, "unix:///tmp/{HOST}")], &["{HOST}", "only {PID} and {UUID}"]),
        (&[(variable::SERVER_URL_PATTERN, "unix:///tmp/{PID")], &["only {PID} and {UUID}"]),
        (&[(variable::TOKEN, "two words")], &["PROFILE_RECORDER_TOKEN: a token consists of"]),
        (&[(variable::TOKEN_FILE, "/run/none")], &["PROFILE_RECORDER_TOKEN_FILE=\"/run/none\": no such file"]),
        (&[(variable::TOKEN_FILE, "/run/empty")], &["PROFILE_RECORDER_TOKEN_FILE: the token is empty"]),
        (&[(variable::TOKEN, "a"), (variable::TOKEN_FILE, "/run/token")], &["not both"]),
        (&[(variable::ALLOC_INTERVAL, "0")], &["PROFILE_RECORDER_ALLOC_INTERVAL=\"0\"", "from 1", "\"off\""]),
        (&[(variable::ALLOC_INTERVAL, "-1")], &["from 1"]),
        (&[(variable::OUTPUT, "/tmp/x.docx")], &["PROFILE_RECORDER_OUTPUT=\"/tmp/x.docx\""]),
        (&[(variable::OUTPUT, "/tmp/{NAME}.svg")], &["only {PID} and {EXE}"]),
        (
            &[(variable::MODE, "CPU")],
            &["PROFILE_RECORDER_MODE=\"CPU\": one of cpu, wall, offcpu, allocs, heap, threads is needed"],
        ),
        (&[(variable::HZ, "0")], &["PROFILE_RECORDER_HZ=\"0\": a whole number from 1 to 10000 is needed"]),
        (
            &[(variable::LOG, "loud")],
            &["PROFILE_RECORDER_LOG=\"loud\": one of off, error, warn, info, debug is needed"],
        ),
    ];
    for (variables, parts) in cases {
        let (_, mistakes) = parse(variables);
        assert_eq!(mistakes.len(), 1, "{variables:?}: {mistakes:?}");
        assert!(!mistakes[0].contains('\n'), "{}", mistakes[0]);
        for part in parts {
            assert!(mistakes[0].contains(part), "{}: {part}", mistakes[0]);
        }
    }
}

#[test]
fn all_mistakes_are_told_at_once_and_the_rest_is_kept() {
    let (config, mistakes) = parse(&[(variable::HZ, "x"), (variable::MODE, "y"), (variable::LOG, "error")]);
    assert_eq!(mistakes.len(), 2);
    assert_eq!(config.log, LogLevel::Error);
}

#[test]
fn a_secret_is_never_repeated() {
    let (_, mistakes) = parse(&[(variable::TOKEN, "my secret")]);
    assert!(!mistakes[0].contains("secret"), "{}", mistakes[0]);
}

#[test]
fn the_output_lies_where_the_process_was_when_the_variable_was_read() {
    for (value, expected) in [
        ("{EXE}-{PID}.svg", "/begun/here/service-42.svg"),
        ("../x.svg", "/begun/here/../x.svg"),
        ("/tmp/x.svg", "/tmp/x.svg"),
    ] {
        let (config, mistakes) = parse(&[(variable::OUTPUT, value)]);
        assert_eq!((config.output.as_deref(), mistakes.as_slice()), (Some(Path::new(expected)), &[][..]), "{value}");
    }
}
