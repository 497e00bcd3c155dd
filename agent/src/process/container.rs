//! The container of a process, by its control group.
//!
//! Engines put a container's id (64 hexadecimal digits) into the group's path. Kubernetes names its containers in the links of
//! `/var/log/containers` (`POD_NAMESPACE_CONTAINER-ID.log`); without one a container is called by the first 12 digits, as `docker ps` does.

use std::fs;
use std::path::Path;

const NAMES: &str = "/var/log/containers";

/// The container of a process whose `/proc/PID/cgroup` is this; `None` if it has none, or the reader's own.
pub(super) fn of(cgroup: &str, own: &str) -> Option<String> {
    let id = id(cgroup).filter(|found| id(own) != Some(*found))?;
    named_in(Path::new(NAMES), id).or_else(|| id.get(..12).map(str::to_owned))
}

/// The last id in any of the paths.
fn id(cgroup: &str) -> Option<&str> {
    let paths = cgroup.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let parts = paths.flat_map(|path| path.rsplit(['/', '-', '.', ':']));
    parts.into_iter().find(|part| part.len() == 64 && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn named_in(directory: &Path, id: &str) -> Option<String> {
    let names = fs::read_dir(directory).ok()?.flatten().map(|entry| entry.file_name());
    names.into_iter().find_map(|name| {
        let name = name.to_string_lossy();
        let (names, of) = name.strip_suffix(".log")?.rsplit_once('-')?;
        let mut parts = names.splitn(3, '_');
        let (pod, namespace, container) = (parts.next()?, parts.next()?, parts.next()?);
        (of == id).then(|| format!("k8s_{container}_{pod}_{namespace}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn engines_put_the_id_into_the_path() {
        for path in [
            format!("0::/system.slice/docker-{ID}.scope"),
            format!("12:cpu:/docker/{ID}\n11:memory:/docker/{ID}"),
            format!(
                "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-{ID}.scope"
            ),
            format!("0::/kubepods/besteffort/pod9/{ID}"),
            format!("0::/user.slice/user-1.slice/libpod-{ID}.scope/container"),
        ] {
            assert_eq!(of(&path, "0::/").as_deref(), Some("0123456789ab"), "{path}");
            assert_eq!(of(&path, &path), None, "in the same container as the agent");
        }
        for path in ["", "0::/", "0::/system.slice/ssh.service", "0::/docker-0123.scope"] {
            assert_eq!(of(path, "0::/"), None, "{path}");
        }
    }

    #[test]
    fn kubernetes_tells_the_name() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(format!("web-7f9_shop_app-{ID}.log")), "").unwrap();
        assert_eq!(named_in(directory.path(), ID).as_deref(), Some("k8s_app_web-7f9_shop"));
        assert_eq!(named_in(directory.path(), "other"), None);
    }
}
