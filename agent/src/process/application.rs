//! What a process is to the people who run it, by its command: the script, the module, the archive, the class, or the executable.

use super::Runtime;
use std::path::Path;

/// An application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Application {
    /// As gProfiler's users know it: `python: app.py (/srv/app.py)`.
    pub(crate) id: String,
    /// Its short name, for engines: `app`.
    pub(crate) service: String,
}

impl Application {
    /// The application of a command that goes by the name `comm`. `directory` is where it runs.
    pub(super) fn of(runtime: Runtime, executable: &Path, comm: &str, arguments: &[String], directory: &Path) -> Self {
        let arguments = arguments.get(1..).unwrap_or_default();
        let script = |kind: &str, script: &str| Self {
            id: format!("{kind}: {script} ({})", directory.join(script).display()),
            service: stem(script),
        };
        let found = match runtime {
            Runtime::Python => match first_word(arguments, &["-W", "-X", "-Q"]) {
                Some(("-m", Some(module))) => {
                    Some(Self { id: format!("python: -m {module}"), service: module.to_owned() })
                }
                // A text of code says nothing, and may say too much.
                Some(("-c" | "-", _)) => None,
                Some((path, _)) => Some(script("python", path)),
                None => None,
            },
            Runtime::Node => plain_word(
                arguments,
                &["-r", "--require", "--import", "--loader"],
                &["-e", "--eval", "-p", "--print", "-pe", "-"],
            )
            .map(|s| script("nodejs", s)),
            Runtime::Ruby => plain_word(arguments, &["-r", "-I"], &["-e", "-"]).map(|s| script("ruby", s)),
            Runtime::Php => plain_word(arguments, &["-c", "-d"], &["-r", "-R", "-B", "-E"]).map(|s| script("php", s)),
            Runtime::Net => plain_word(arguments, &[], &[]).map(|s| script("dotnet", s)),
            Runtime::Java => java(arguments),
            Runtime::Native => None,
        };
        // One executable can have several names: redis-server is a link.
        found.unwrap_or_else(|| Self {
            id: format!("native: {comm} ({})", executable.display()),
            service: comm.to_owned(),
        })
    }
}

/// The first argument that is no option, or an option that stands for one, and what follows it. `valued` options take the next argument.
fn first_word<'a>(arguments: &'a [String], valued: &[&str]) -> Option<(&'a str, Option<&'a str>)> {
    let mut rest = arguments.iter().map(String::as_str);
    while let Some(word) = rest.next() {
        if valued.contains(&word) {
            rest.next();
        } else if !word.is_empty() && (!word.starts_with('-') || ["-m", "-c", "-"].contains(&word)) {
            return Some((word, rest.next()));
        }
    }
    None
}

/// The first argument that is no option; none after one of `code`, whose argument is the program itself.
fn plain_word<'a>(arguments: &'a [String], valued: &[&str], code: &[&str]) -> Option<&'a str> {
    let mut rest = arguments.iter().map(String::as_str);
    while let Some(word) = rest.next() {
        if code.contains(&word) {
            return None;
        }
        if valued.contains(&word) {
            rest.next();
        } else if !word.is_empty() && !word.starts_with('-') {
            return Some(word);
        }
    }
    None
}

fn java(arguments: &[String]) -> Option<Application> {
    let valued =
        ["-cp", "-classpath", "--class-path", "-p", "--module-path", "--add-modules", "--add-opens", "--add-exports"];
    let archive = arguments.iter().position(|word| word == "-jar").and_then(|at| arguments.get(at + 1));
    let name = archive.map(String::as_str).or_else(|| plain_word(arguments, &valued, &[]))?;
    let service =
        if archive.is_some() { stem(name) } else { name.rsplit(['.', '/']).next().unwrap_or(name).to_owned() };
    Some(Application { id: format!("java: {name}"), service })
}

fn stem(path: &str) -> String {
    Path::new(path).file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_name_applications() {
        for (command, id, service) in [
            ("/usr/bin/python3 -X perf -u app.py --port 1", "python: app.py (/srv/app.py)", "app"),
            ("/usr/bin/python3 -m http.server 80", "python: -m http.server", "http.server"),
            ("/usr/bin/python3 -c print(1)", "native: python3 (/usr/bin/python3)", "python3"),
            ("/usr/bin/python3 /usr/bin/gunicorn a:b", "python: /usr/bin/gunicorn (/usr/bin/gunicorn)", "gunicorn"),
            ("/usr/bin/node --require x.js --perf-basic-prof s.js", "nodejs: s.js (/srv/s.js)", "s"),
            ("/usr/bin/node --perf-basic-prof -e f()", "native: node (/usr/bin/node)", "node"),
            ("/usr/bin/ruby -e sleep", "native: ruby (/usr/bin/ruby)", "ruby"),
            ("/usr/bin/php -d x=1 -r phpinfo();", "native: php (/usr/bin/php)", "php"),
            ("/usr/bin/java -Xmx1g -cp a.jar com.shop.Main x", "java: com.shop.Main", "Main"),
            ("/usr/bin/java -Xmx1g -jar /opt/shop.jar x", "java: /opt/shop.jar", "shop"),
            ("/usr/bin/java", "native: java (/usr/bin/java)", "java"),
            ("/usr/bin/redis-server *:6379", "native: redis-server (/usr/bin/redis-server)", "redis-server"),
        ] {
            let arguments: Vec<String> = command.split(' ').map(str::to_owned).collect();
            let executable = Path::new(&arguments[0]);
            let comm = executable.file_name().unwrap().to_str().unwrap();
            let application = Application::of(Runtime::of(executable), executable, comm, &arguments, Path::new("/srv"));
            assert_eq!((application.id.as_str(), application.service.as_str()), (id, service), "{command}");
        }
    }
}
