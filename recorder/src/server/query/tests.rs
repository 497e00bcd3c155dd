use super::*;
use profile::Mode;

fn order(path: &str, query: &str) -> Result<Order, Problem> {
    Query::parse(query)?.order(Name::find(path).unwrap())
}

fn cpu(query: &str) -> Order {
    order("profile", query).unwrap()
}

fn heap(query: &str) -> Order {
    order("heap", query).unwrap()
}

fn file_name(order: &Order) -> &str {
    match &order.delivery {
        Delivery::Go { file_name } => file_name,
        Delivery::Samples => panic!(),
    }
}

#[test]
fn defaults_are_those_of_go() {
    let order = cpu("");
    assert_eq!(order.request, Request { mode: Mode::Cpu, hz: 99, seconds: Some(30.0), interval: None });
    assert_eq!((order.format, order.detail, &order.thread), (Format::Pprof, Detail::Full, &None));
    assert_eq!(file_name(&order), "profile");
    let order = heap("");
    assert_eq!(order.request, Request { mode: Mode::Heap, hz: 99, seconds: None, interval: None });
    assert_eq!(file_name(&order), "heap");
}

#[test]
fn every_parameter_reaches_the_order() {
    let order = cpu("seconds=2.5&hz=250&mode=wall&format=collapsed&symbols=names&thread=worker-*&debug=0&gc=1");
    assert_eq!(order.request, Request { mode: Mode::Wall, hz: 250, seconds: Some(2.5), interval: None });
    assert_eq!((order.format, order.detail), (Format::Collapsed, Detail::Names));
    assert_eq!(order.thread, Some(Glob::new("worker-*")));
    assert_eq!(file_name(&order), "wall");
    let order = heap("seconds=10&interval=1");
    assert_eq!(order.request, Request { mode: Mode::Heap, hz: 99, seconds: Some(10.0), interval: Some(1) });
    assert_eq!(file_name(&order), "heap-delta");
}

#[test]
fn values_are_decoded() {
    assert_eq!(cpu("thread=a%20b+c%2Bd").thread, Some(Glob::new("a b c+d")));
    assert_eq!(cpu("%68z=5").request.hz, 5);
    // As browsers do, a percent sign that begins no code stands for itself.
    assert_eq!(cpu("thread=100%&&").thread, Some(Glob::new("100%")));
}

#[test]
fn rate_is_another_name_of_hz_and_repeated_parameters_must_agree() {
    assert_eq!(cpu("rate=7").request.hz, 7);
    assert_eq!(cpu("rate=7&hz=7&hz=7").request.hz, 7);
    for query in ["rate=7&hz=8", "hz=7&hz=8", "seconds=1&seconds=2"] {
        assert!(order("profile", query).is_err(), "{query}");
    }
}

#[test]
fn an_interval_of_allocations_means_nothing_to_time() {
    assert_eq!(cpu("interval=1").request.interval, None);
}

#[test]
fn bad_values_are_refused_with_their_parameter() {
    let long = "9".repeat(5000);
    let numbers =
        ["", "0", "-1", "+1", "abc", "1e3", "nan", "inf", "-inf", "0x10", " 1", "1 ", "1;2", "%00", "\u{663}", &long];
    let mut cases: Vec<(String, String)> = Vec::new();
    for name in ["seconds", "hz", "rate", "interval"] {
        cases.extend(numbers.iter().map(|value| (name.to_owned(), (*value).to_owned())));
    }
    let more = [
        ("seconds", &["3601", "3600.5", "1h", "1.2.3", ".", "99999999999999999999"][..]),
        ("hz", &["10001", "4294967296", "1.5", "100 Hz", "99999999999999999999"]),
        ("rate", &["10001", "4294967297", "0.5", "-100", "1000000"]),
        ("interval", &["off", "0KiB", "-512KiB", "2TiB", "1.5", "5 apples", "18446744073709551616", "KiB"]),
        ("mode", &["", "CPU", "off-cpu", "goroutine", "cpu,wall", "cpu ", "all", "%00"]),
        ("format", &["", "PPROF", "exe", "pdf", "pprof.gz", "../x", "%0a"]),
        ("symbols", &["", "yes", "true", "Full", "0", "1"]),
        ("debug", &["", "3", "-1", "x", "1.0"]),
    ];
    for (name, values) in more {
        cases.extend(values.iter().map(|value| (name.to_owned(), (*value).to_owned())));
    }
    for (name, value) in &cases {
        // An interval alone is refused for want of a window.
        let window = if name == "interval" { "&seconds=1" } else { "" };
        let query = format!("{name}={value}{window}");
        let problem = order("heap", &query).map(|order| panic!("{query}: {order:?}")).unwrap_err();
        let Problem::BadRequest(text) = problem else { panic!("{query}: {problem:?}") };
        assert!(text.contains(&format!("for \"{name}\": ")) && text.contains(" is needed"), "{query}: {text}");
    }
    assert!(cases.len() >= 95);
}

#[test]
fn the_message_names_parameter_value_and_what_is_allowed() {
    let text = |query| match order("profile", query) {
        Err(Problem::BadRequest(text)) => text,
        other => panic!("{other:?}"),
    };
    assert_eq!(text("hz=0"), "invalid value \"0\" for \"hz\": a whole number from 1 to 10000 is needed");
    assert_eq!(
        text("mode=x"),
        format!("invalid value \"x\" for \"mode\": one of {} is needed", Mode::ALL.map(Mode::name).join(", "))
    );
    assert_eq!(text("debug=1&format=svg"), "\"debug\" asks for text: \"format\" cannot be given as well");
    assert_eq!(text("thread=%ff"), "the query is not UTF-8");
    assert_eq!(text("mode=heap&interval=1"), "\"interval\" belongs to a window: \"seconds\" is needed too");
    assert_eq!(text(&"a&".repeat(65)), "more than 64 parameters");
}

#[test]
fn the_names_of_go_mean_our_modes_or_an_empty_profile() {
    let of = |path: &str| order(path, "").unwrap();
    assert_eq!((of("goroutine").request.mode, of("goroutine").empty), (Mode::Threads, None));
    assert_eq!(file_name(&of("goroutine")), "goroutine");
    for (path, kinds) in [
        ("threadcreate", &["threadcreate"][..]),
        ("block", &["contentions", "delay"]),
        ("mutex", &["contentions", "delay"]),
    ] {
        let columns = of(path).empty.unwrap_or_else(|| panic!("{path}"));
        assert_eq!(columns.iter().map(|column| &*column.kind).collect::<Vec<_>>(), kinds, "{path}");
    }
    // Another mode by the same path is recorded.
    assert_eq!(order("mutex", "mode=cpu").unwrap().empty, None);
    assert_eq!((of("threads").request.seconds, order("goroutine", "seconds=5").unwrap().request.seconds), (None, None));
    assert_eq!(Name::find("goroutines"), None);
}
