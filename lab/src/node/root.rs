//! What does a node see as its root?
//!
//! A tmpfs of its own, into which each entry of the machine's root is bound. Where a mount path does not exist on
//! the machine, it is made in that tmpfs, or in another one that takes the place of its nearest existing parent
//! and holds binds of that directory's entries. So nothing is ever created on the machine's own file systems,
//! but for the mount points of paths within private directories. (A file that a program creates directly in a
//! directory so replaced is lost with the node.)

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::{chdir, pivot_root};

use super::init::{At, Fault};
use super::{Bind, NodeSpec};

/// Size of a tmpfs that holds only directories, links and mount points. A bound, so that a program that writes
/// into a replaced directory fills this and not the machine's memory.
const SKELETON: &str = "mode=0755,size=64m";
/// Entries of the machine's root that a node has of its own.
const FRESH: [&str; 2] = ["proc", "sys"];

const NOTHING: Option<&Path> = None;

/// Builds the root in the mount namespace of the calling process, which is new, and moves into it.
pub(super) fn enter(spec: &NodeSpec) -> Result<(), Fault> {
    mount(NOTHING, "/", NOTHING, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NOTHING)
        .at("make mounts private", "/")?;
    let root = fs::canonicalize(&spec.root).at("find the directory of the root", &spec.root)?;
    let builder = Builder { root: &root };
    builder.tmpfs(Path::new("/"), SKELETON)?;
    builder.mirror(Path::new("/"), &FRESH)?;
    builder.fresh(spec.shm_bytes)?;
    builder.targets(spec)?;
    pivot(&root)
}

fn pivot(root: &Path) -> Result<(), Fault> {
    chdir(root).at("enter the new root", root)?;
    // The old root comes to lie upon the new one, from where it is detached: no directory is needed for it.
    pivot_root(".", ".").at("change the root", root)?;
    umount2(".", MntFlags::MNT_DETACH).at("detach the machine's root", "/")?;
    chdir("/").at("enter the new root", "/")
}

struct Builder<'a> {
    root: &'a Path,
}

/// A path that something is to be mounted on.
struct Target<'a> {
    source: &'a Path,
    read_only: bool,
    private: bool,
}

/// Where a path leads on the machine: what exists of it, links resolved, and the rest.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    existing: PathBuf,
    missing: PathBuf,
}

impl Builder<'_> {
    /// Where a path of the node is now, while the node's root is not yet the root.
    fn inside(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    fn tmpfs(&self, path: &Path, options: &str) -> Result<(), Fault> {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        let place = self.inside(path);
        mount(Some("tmpfs"), &place, Some("tmpfs"), flags, Some(options)).at("mount a tmpfs", path)
    }

    /// Fills an empty directory of ours with the entries of the machine's directory of the same path.
    fn mirror(&self, directory: &Path, except: &[&str]) -> Result<(), Fault> {
        for entry in fs::read_dir(directory).at("read the directory", directory)? {
            let entry = entry.at("read the directory", directory)?;
            if except.iter().any(|name| entry.file_name() == *name) {
                continue;
            }
            let path = entry.path();
            match self.mirror_entry(&path) {
                // Another process has just removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                result => result.at("show the machine's file", &path)?,
            }
        }
        if self.root.starts_with(directory) {
            // The directory of the root lies in one of the trees just bound, and its mount was bound with it.
            let image = self.inside(self.root);
            umount2(&image, MntFlags::MNT_DETACH).at("unmount the root's image in itself", self.root)?;
        }
        Ok(())
    }

    fn mirror_entry(&self, path: &Path) -> io::Result<()> {
        let place = self.inside(path);
        let meta = fs::symlink_metadata(path)?;
        if meta.is_symlink() {
            symlink(fs::read_link(path)?, &place)?;
            return lchown(&place, Some(meta.uid()), Some(meta.gid()));
        }
        if meta.is_dir() {
            fs::create_dir(&place)?;
        } else {
            File::create(&place)?;
        }
        let bound = mount(Some(path), &place, NOTHING, MsFlags::MS_BIND | MsFlags::MS_REC, NOTHING);
        if bound.is_err() {
            // Nothing of ours must stand where the machine has something else.
            if meta.is_dir() { fs::remove_dir(&place)? } else { fs::remove_file(&place)? }
        }
        Ok(bound?)
    }

    /// Mounts what a node has of its own: processes, shared memory, devices of its network.
    fn fresh(&self, shm_bytes: u64) -> Result<(), Fault> {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        for name in FRESH {
            let path = Path::new("/").join(name);
            fs::create_dir(self.inside(&path)).at("make a mount point", &path)?;
        }
        let proc = Path::new("/proc");
        mount(Some("proc"), &self.inside(proc), Some("proc"), flags, NOTHING)
            .at("mount the node's processes", proc)?;
        self.sys(flags)?;
        let shm = Path::new("/dev/shm");
        if shm.is_dir() {
            self.tmpfs(shm, &format!("mode=1777,size={shm_bytes}"))?;
        }
        Ok(())
    }

    /// A sysfs shows the interfaces of the namespace that mounted it, so the node's programs want their own. Where
    /// the machine (a container, say) forbids that, they get the machine's.
    fn sys(&self, flags: MsFlags) -> Result<(), Fault> {
        let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
        let sys = Path::new("/sys");
        let place = self.inside(sys);
        if mount(Some("sysfs"), &place, Some("sysfs"), flags, NOTHING).is_err() {
            return mount(Some(sys), &place, NOTHING, bind, NOTHING).at("show the machine's devices", sys);
        }
        let groups = Path::new("/sys/fs/cgroup");
        if groups.is_dir() {
            let place = self.inside(groups);
            mount(Some(groups), &place, NOTHING, bind, NOTHING).at("show the control groups", groups)?;
        }
        Ok(())
    }

    /// Mounts private directories and binds, outer ones first.
    fn targets(&self, spec: &NodeSpec) -> Result<(), Fault> {
        let targets = collect(spec);
        let mut found = BTreeMap::new();
        let mut replaced = BTreeSet::new();
        for &path in targets.keys() {
            if enclosing(&targets, path).is_some() {
                continue;
            }
            let place = locate(path).at("find the mount path", path)?;
            if !place.missing.as_os_str().is_empty() && place.existing != Path::new("/") {
                replaced.insert(place.existing.clone());
            }
            found.insert(path, place);
        }
        // Parents before children, so that no replacement hides another.
        for directory in &replaced {
            self.replace(directory)?;
        }
        for (&path, target) in &targets {
            let is_dir =
                fs::metadata(target.source).at("find the source of a mount", target.source)?.is_dir();
            let place = match (found.get(path), enclosing(&targets, path)) {
                (Some(Found { existing, missing }), _) if missing.as_os_str().is_empty() => existing.clone(),
                (Some(Found { existing, missing }), _) => {
                    let place = existing.join(missing);
                    make_mount_point(&self.inside(&place), is_dir).at("make the mount path", path)?;
                    place
                }
                (None, Some((outer, within))) => {
                    make_within(outer, within, is_dir).at("make the mount path", path)?;
                    path.to_path_buf()
                }
                (None, None) => path.to_path_buf(),
            };
            self.bind(target, &place)?;
        }
        Ok(())
    }

    fn bind(&self, target: &Target<'_>, path: &Path) -> Result<(), Fault> {
        let place = self.inside(path);
        let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
        mount(Some(target.source), &place, NOTHING, flags, NOTHING).at("mount", path)?;
        if target.read_only {
            let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
            mount(NOTHING, &place, NOTHING, flags, NOTHING).at("make read-only", path)?;
        }
        Ok(())
    }

    /// Puts a tmpfs in the place of a directory, with binds of its entries.
    fn replace(&self, directory: &Path) -> Result<(), Fault> {
        let meta: Metadata = fs::metadata(directory).at("find the parent of a mount path", directory)?;
        if !meta.is_dir() {
            return Err(Fault::new(
                "mount under a file",
                directory,
                io::Error::from(io::ErrorKind::NotADirectory),
            ));
        }
        self.tmpfs(directory, SKELETON)?;
        let place = self.inside(directory);
        chown(&place, Some(meta.uid()), Some(meta.gid())).at("give a directory its owner", directory)?;
        fs::set_permissions(&place, fs::Permissions::from_mode(meta.mode() & 0o7777))
            .at("give a directory its mode", directory)?;
        self.mirror(directory, &[])
    }
}

/// All targets by path. `BTreeMap` orders paths by component, so an outer one comes before those within it.
fn collect(spec: &NodeSpec) -> BTreeMap<&Path, Target<'_>> {
    let private = spec
        .private
        .iter()
        .map(|(target, source)| (target.as_path(), Target { source, read_only: false, private: true }));
    let binds = spec.binds.iter().map(|Bind { source, target, read_only }| {
        (target.as_path(), Target { source, read_only: *read_only, private: false })
    });
    private.chain(binds).collect()
}

/// The innermost target that a path lies within, and the path in it.
fn enclosing<'a, 'b>(
    targets: &'b BTreeMap<&'a Path, Target<'a>>,
    path: &'a Path,
) -> Option<(&'b Target<'a>, &'a Path)> {
    let outer = path.ancestors().skip(1).find(|ancestor| targets.contains_key(ancestor))?;
    Some((targets.get(outer)?, path.strip_prefix(outer).ok()?))
}

/// Makes a mount point in the source of the target around it. Only private directories are ours to write to.
fn make_within(outer: &Target<'_>, within: &Path, is_dir: bool) -> io::Result<()> {
    let place = outer.source.join(within);
    if place.symlink_metadata().is_ok() {
        return Ok(());
    }
    if !outer.private {
        return Err(io::Error::new(io::ErrorKind::NotFound, "it does not exist in what is bound around it"));
    }
    make_mount_point(&place, is_dir)
}

fn make_mount_point(place: &Path, is_dir: bool) -> io::Result<()> {
    if is_dir {
        return fs::create_dir_all(place);
    }
    if let Some(parent) = place.parent() {
        fs::create_dir_all(parent)?;
    }
    File::options().create(true).append(true).open(place).map(drop)
}

/// Follows a path on the machine as far as it exists.
fn locate(path: &Path) -> io::Result<Found> {
    for existing in path.ancestors() {
        match fs::canonicalize(existing) {
            Ok(resolved) => {
                let missing = path.strip_prefix(existing).unwrap_or(Path::new("")).to_path_buf();
                return Ok(Found { existing: resolved, missing });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if existing.is_symlink() {
                    return Err(io::Error::new(
                        io::ErrorKind::NotFound,
                        format!("`{}` is a link that leads nowhere", existing.display()),
                    ));
                }
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::from(io::ErrorKind::InvalidInput))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_followed_as_far_as_it_exists() {
        let directory = tempfile::tempdir().unwrap();
        let real = fs::canonicalize(directory.path()).unwrap();
        fs::create_dir(real.join("a")).unwrap();
        symlink("a", real.join("link")).unwrap();
        symlink("gone", real.join("broken")).unwrap();
        let found = |path: &str| locate(&real.join(path)).unwrap();
        assert_eq!(found("a"), Found { existing: real.join("a"), missing: PathBuf::new() });
        assert_eq!(found("link/x/y"), Found { existing: real.join("a"), missing: PathBuf::from("x/y") });
        assert!(locate(&real.join("broken/x")).unwrap_err().to_string().contains("broken"));
    }

    #[test]
    fn targets_know_what_is_around_them() {
        let spec = NodeSpec {
            name: "n".into(),
            address: [10, 42, 0, 1].into(),
            prefix: 16,
            root: "/r".into(),
            private: vec![("/data/ics".into(), "/s/ics".into()), ("/data".into(), "/s/data".into())],
            binds: vec![Bind { source: "/s/hosts".into(), target: "/etc/hosts".into(), read_only: true }],
            shm_bytes: 1,
            init: vec!["/bin/true".into()],
            environment: BTreeMap::new(),
        };
        let targets = collect(&spec);
        let order: Vec<_> = targets.keys().map(|path| path.display().to_string()).collect();
        assert_eq!(order, ["/data", "/data/ics", "/etc/hosts"]);
        let (outer, within) = enclosing(&targets, Path::new("/data/ics")).unwrap();
        assert_eq!((outer.source, within), (Path::new("/s/data"), Path::new("ics")));
        assert!(enclosing(&targets, Path::new("/etc/hosts")).is_none());
    }
}
