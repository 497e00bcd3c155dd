//! `record --mode heap` ends with who allocated what was still live, to the unit.

use profile_recorder_tests::{output, pprof, programs, run, scratch, text};

/// Objects and bytes that the table gives to each function of the victim.
fn table(stderr: &str) -> Vec<(String, i64, String)> {
    let rows = stderr.lines().skip_while(|line| !line.starts_with("live objects")).skip(1);
    rows.take_while(|line| line.starts_with(' '))
        .map(|row| {
            let (objects, rest) = row.trim().split_once("  ").expect(row);
            let (bytes, place) = rest.trim().split_once("  ").expect(row);
            (place.to_owned(), objects.replace(',', "").parse().expect(row), bytes.to_owned())
        })
        .collect()
}

fn leaks(arguments: &[&str]) -> (Vec<(String, i64, String)>, String) {
    let directory = scratch();
    let program = programs::compile_c("leaks", directory.path());
    let profile = directory.path().join("p.pb.gz");
    let mut words = vec!["record", "--mode", "heap", "-o", profile.to_str().unwrap(), "--", program.to_str().unwrap()];
    words.extend(arguments);
    let recorded = output(&mut run(&words));
    assert!(recorded.status.success(), "{}", text(&recorded.stderr));
    let top = pprof::go(&["-top", "-cum", "-unit=B"], profile.to_str().unwrap());
    assert!(top.contains("Type: inuse_space"), "what is shown first:\n{top}");
    (table(&text(&recorded.stderr)), text(&recorded.stderr))
}

fn check(arguments: &[&str], expected: &[(&str, i64, &str)], total: &str) {
    let (rows, stderr) = leaks(arguments);
    for (row, (function, objects, bytes)) in rows.iter().zip(expected) {
        let (place, of_row, bytes_of_row) = row;
        assert!(place.starts_with(&format!("{function} (")) && place.contains("leaks.c:"), "{stderr}");
        assert_eq!((of_row, bytes_of_row.as_str()), (objects, *bytes), "{stderr}");
    }
    assert_eq!(rows.len(), expected.len(), "{stderr}");
    assert!(stderr.contains(total), "{stderr}");
}

#[test]
fn each_site_is_listed_with_what_it_leaked() {
    let expected = [("leak_large", 30, "146.5 KiB"), ("leak_small", 700, "16.4 KiB"), ("leak_copies", 11, "176 B")];
    check(&[], &expected, "heap: 741 allocations live at the end, 163.1 KiB, ");
}

#[test]
fn processes_are_together() {
    let expected = [("leak_large", 42, "205.1 KiB"), ("leak_small", 700, "16.4 KiB"), ("leak_copies", 11, "176 B")];
    check(&["fork"], &expected, "heap: 753 allocations live at the end, 221.7 KiB, ");
}

#[test]
fn nothing_is_said_when_nothing_shall_be() {
    let directory = scratch();
    let program = programs::compile_c("leaks", directory.path());
    let profile = directory.path().join("p.pb.gz");
    let words =
        ["record", "--quiet", "--mode", "heap", "-o", profile.to_str().unwrap(), "--", program.to_str().unwrap()];
    let recorded = output(&mut run(&words));
    assert_eq!((recorded.status.code(), text(&recorded.stderr).as_str()), (Some(0), ""));
}
