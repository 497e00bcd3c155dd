//! Which processes there are to record: those of the registry, and those at configured sockets and ports.

use crate::Error;
use crate::recorders::{self, Address, Recorder, environment_token};
use crate::settings::{Labels, Secret, Settings, Target};
use profile::{Glob, Mode};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Most ports of one range.
const MOST_PORTS: u16 = 1024;

/// A recorder, and what is wanted of it.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Where it listens.
    pub(crate) address: Address,
    /// Its process, as this machine numbers it, where it is known without asking.
    pub(crate) pid: Option<u32>,
    /// When that process began, which tells it from a later one with its number; 0 if unknown.
    pub(crate) start: u64,
    /// The name of its executable, or of its socket.
    pub(crate) name: String,
    /// The token that it wants.
    pub(crate) token: Option<Secret>,
    /// What is measured.
    pub(crate) modes: Vec<Mode>,
    /// Samples a second at most.
    pub(crate) frequency: u32,
    /// Labels from the configuration.
    pub(crate) labels: Labels,
}

/// Every process that is to be recorded, in the order of their addresses, each once.
pub(crate) fn processes(settings: &Settings, own_token: Option<&Secret>) -> Vec<Found> {
    let mut found: BTreeMap<String, Found> = BTreeMap::new();
    for target in &settings.targets {
        let sockets = target.sockets.iter().flat_map(|pattern| sockets(pattern)).map(Address::Unix);
        let tcp = target.ports.iter().filter_map(|text| ports(text).ok()).flatten().map(Address::Tcp);
        for address in sockets.chain(tcp) {
            let name = match &address {
                Address::Unix(path) => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
                Address::Tcp(host) => host.clone(),
            };
            found.entry(address.to_string()).or_insert_with(|| {
                let token = target.token.clone();
                Found { token, ..wanted(settings, Some(target), address, name) }
            });
        }
    }
    let mut pids: BTreeSet<u32> = BTreeSet::new();
    for (recorder, is_here) in registered(settings) {
        // A process with several servers answers at each of them.
        if is_here && !pids.insert(recorder.pid) {
            continue;
        }
        let Ok(address) = Address::of_url(&recorder.url) else { continue };
        let target = settings.targets.iter().find(|target| target.matches(recorder.name()));
        let key = address.to_string();
        let mut of_registry = wanted(settings, target, address, recorder.name().to_owned());
        // Who else has named an address may want to have our token.
        let own_token = own_token.filter(|_| is_here && is_of_this_user(recorder.pid));
        of_registry.token = target.and_then(|target| target.token.clone()).or_else(|| own_token.cloned());
        if is_here {
            (of_registry.pid, of_registry.start) = (Some(recorder.pid), recorder.start);
        }
        match found.get_mut(&key) {
            Some(known) => (known.pid, known.start) = (of_registry.pid, of_registry.start),
            None => drop(found.insert(key, of_registry)),
        }
    }
    found.into_values().filter(|found| !found.modes.is_empty()).collect()
}

/// The token that the environment holds, for recorders of this user.
pub(crate) fn own_token() -> Result<Option<Secret>, Error> {
    environment_token().map(|token| token.map(Secret::from))
}

fn wanted(settings: &Settings, target: Option<&Target>, address: Address, name: String) -> Found {
    let mut labels = settings.labels.clone();
    labels.extend(target.into_iter().flat_map(|target| target.labels.clone()));
    Found {
        address,
        pid: None,
        start: 0,
        name,
        token: None,
        modes: target.and_then(|target| target.modes.clone()).unwrap_or_else(|| settings.modes.clone()),
        frequency: target.and_then(|target| target.frequency).unwrap_or(settings.frequency),
        labels,
    }
}

fn is_of_this_user(pid: u32) -> bool {
    let owner = fs::metadata(format!("/proc/{pid}")).map(|metadata| metadata.uid());
    owner.is_ok_and(|owner| owner == rustix::process::geteuid().as_raw())
}

/// Recorders of registry directories, and whether their process ids are this machine's.
fn registered(settings: &Settings) -> Vec<(Recorder, bool)> {
    let mut all = Vec::new();
    if settings.registry {
        let here = recorders::registries_of_all();
        let running = here.iter().flat_map(|place| recorders::of_directory(place)).filter(Recorder::is_running);
        all.extend(running.map(|recorder| (recorder, true)));
    }
    for place in &settings.registries {
        // Of a container, perhaps: its numbers mean other processes here.
        let entries = recorders::of_directory(place);
        all.extend(entries.into_iter().map(|recorder| {
            let is_here = recorder.is_running();
            (recorder, is_here)
        }));
    }
    all.retain(|(recorder, _)| is_on_this_machine(&recorder.url));
    all
}

/// A file of the registry sends nobody to another machine.
fn is_on_this_machine(url: &str) -> bool {
    match Address::of_url(url) {
        Ok(Address::Unix(_)) => true,
        Ok(Address::Tcp(host)) => {
            ["127.", "[::1]:", "localhost:", "0.0.0.0:", "[::]:"].iter().any(|loopback| host.starts_with(loopback))
        }
        Err(_) => false,
    }
}

/// The sockets that a path names, with `*` in its last component.
fn sockets(pattern: &Path) -> Vec<PathBuf> {
    let (Some(directory), Some(name)) = (pattern.parent(), pattern.file_name()) else { return Vec::new() };
    let glob = Glob::new(&name.to_string_lossy());
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let sockets = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()));
    sockets.filter(|entry| glob.matches(&entry.file_name().to_string_lossy())).map(|entry| entry.path()).collect()
}

/// `HOST:PORT` of each port of `HOST:FIRST-LAST`.
pub(crate) fn ports(text: &str) -> Result<Vec<String>, String> {
    let wrong = || format!("'{text}' is not HOST:PORT or HOST:FIRST-LAST of at most {MOST_PORTS} ports");
    let (host, ports) = text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).ok_or_else(wrong)?;
    let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
    let (first, last) = first.parse::<u16>().ok().zip(last.parse::<u16>().ok()).ok_or_else(wrong)?;
    if first == 0 || last < first || last - first >= MOST_PORTS {
        return Err(wrong());
    }
    Ok((first..=last).map(|port| format!("{host}:{port}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn ranges_of_ports_are_bounded() {
        assert_eq!(ports("127.0.0.1:80"), Ok(vec!["127.0.0.1:80".to_owned()]));
        assert_eq!(ports("[::1]:6060-6061").unwrap(), ["[::1]:6060", "[::1]:6061"]);
        for text in ["", ":1", "a", "a:", "a:0", "a:2-1", "a:1-65535", "a:1-", "a:70000"] {
            assert!(ports(text).is_err(), "{text}");
        }
    }

    #[test]
    fn patterns_and_registries_are_one_list() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let _sockets = ["a-1.sock", "a-2.sock", "b.sock"].map(|name| UnixListener::bind(path(name)).unwrap());
        fs::write(path("a-3.sock"), "no socket").unwrap();
        let registry = path("registry");
        fs::create_dir(&registry).unwrap();
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let start = recorders::start_ticks(&stat).unwrap();
        for (name, url, start) in [
            ("1.json", format!("unix://{}", path("a-1.sock").display()), start),
            ("2.json", "http://10.0.0.1:80".to_owned(), start),
            ("3.json", format!("unix://{}", path("b.sock").display()), 1),
        ] {
            let pid = std::process::id();
            let entry = serde_json::json!({"pid": pid, "exe": "/bin/shop", "url": url, "start": start});
            fs::write(registry.join(name), entry.to_string()).unwrap();
        }
        let settings = Settings {
            registry: false,
            registries: vec![registry],
            labels: Labels::from([("env".into(), "prod".into())]),
            targets: vec![
                Target { sockets: vec![path("a-*.sock")], frequency: Some(99), ..Target::default() },
                Target {
                    names: vec!["sh*".into()],
                    modes: Some(vec![Mode::Heap]),
                    labels: Labels::from([("team".into(), "shop".into())]),
                    ..Target::default()
                },
            ],
            ..Settings::default()
        };
        let found = processes(&settings, None);
        let described: Vec<_> =
            found.iter().map(|f| (&*f.name, f.pid.is_some(), f.modes.clone(), f.frequency)).collect();
        let expected = [
            ("a-1", true, vec![Mode::Cpu], 99),
            ("a-2", false, vec![Mode::Cpu], 99),
            ("shop", false, vec![Mode::Heap], 11),
        ];
        assert_eq!(described, expected);
        assert_eq!(found[2].labels.keys().collect::<Vec<_>>(), ["env", "team"]);
    }
}
