//! Can each path of the manifest be what it is to be in a node?
//!
//! A node sees the machine's files, but for `/data`, `/scratch` and the mount paths of datasets, which are its own. So a
//! mount path must not hide what the run needs, and a working directory must be there once the datasets are.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use gridcast_core::mpi::Implementation;
use gridcast_crds::virtual_cluster as vc;

use crate::failure::Failure;

use super::{DataPlan, PRIVATE};
use crate::local::origin::Origin;

/// Directories that programs write to or are found in. The rules of the API refuse some of them by name; here links of
/// the machine are followed.
const NEEDED: [&str; 13] = [
    "/", "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/tmp", "/usr",
];

/// Refuses mount paths that cannot be mounted, or that would hide what the run needs.
pub(super) fn check_mount_paths(data: &[DataPlan], launcher: Option<&Launcher>) -> Result<(), Failure> {
    let mut seen: Vec<(PathBuf, usize)> = Vec::new();
    for (index, data) in data.iter().enumerate() {
        let refuse = |why: String| {
            Failure::input(format!("spec.data[{index}].mountPath: {} {why}", data.mount_path.display()))
        };
        let place = place(&data.mount_path).map_err(refuse)?;
        if let Some(needed) = NEEDED.iter().find(|needed| place == Path::new(needed)) {
            return Err(refuse(format!(
                "would hide {needed}, which programs need; choose a directory below it, or another"
            )));
        }
        if let Some(launcher) = launcher.filter(|launcher| launcher.path.starts_with(&place)) {
            return Err(refuse(format!(
                "would hide {}, which starts the program; choose another directory",
                launcher.name
            )));
        }
        let other = seen.iter().find(|(other, _)| place.starts_with(other) || other.starts_with(&place));
        if let Some((_, other)) = other {
            return Err(refuse(format!(
                "and spec.data[{other}].mountPath are one directory, or one is below the other, by a link of this machine; choose another"
            )));
        }
        seen.push((place, index));
    }
    Ok(())
}

/// Where a mount path leads on the machine, links followed as far as it exists.
fn place(path: &Path) -> Result<PathBuf, String> {
    for existing in path.ancestors() {
        match fs::canonicalize(existing) {
            Ok(real) if real.is_dir() => {
                let missing = path.strip_prefix(existing).unwrap_or(Path::new(""));
                return Ok(real.components().chain(missing.components()).collect());
            }
            Ok(_) => {
                return Err(format!(
                    "cannot be mounted: {} is a file; choose another directory",
                    existing.display()
                ));
            }
            Err(_) if existing.is_symlink() => {
                return Err(format!(
                    "cannot be mounted: {} is a link that leads nowhere; mend it, or choose another directory",
                    existing.display()
                ));
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(error) => return Err(format!("cannot be found: {error}; choose another directory")),
        }
    }
    Err("is not absolute; begin it with /".to_owned())
}

/// Where programs start: `workingDirectory`, or where this command was called.
pub(super) fn directory(run: Option<&vc::Run>, data: &[DataPlan]) -> Result<PathBuf, Failure> {
    let given = run.and_then(|r| r.working_directory.as_ref()).map(PathBuf::from);
    let (field, directory) = match given {
        Some(directory) => ("spec.run.workingDirectory", directory),
        None => (
            "the current directory",
            env::current_dir().map_err(|e| {
                Failure::input(format!("the current directory cannot be found: {e}; go to another"))
            })?,
        ),
    };
    let refuse = |why: &str| Err(Failure::input(format!("{field}: {} {why}", directory.display())));
    if let Some((data, below)) =
        data.iter().find_map(|d| Some((d, directory.strip_prefix(&d.mount_path).ok()?)))
    {
        let found = match &data.origin {
            Origin::Path(source) if source.is_dir() => source.join(below).is_dir(),
            Origin::Path(_) | Origin::Keys { .. } | Origin::Url { .. } => below.as_os_str().is_empty(),
        };
        if found {
            return Ok(directory);
        }
        return refuse(&format!(
            "is no directory of dataset {}, which is mounted at {}; add it to the dataset, or choose another",
            data.name,
            data.mount_path.display()
        ));
    }
    if private(&directory).is_some() || directory.is_dir() {
        return Ok(directory);
    }
    refuse(
        "is not a directory of this machine; make it, or use one below /scratch, which each node has for itself",
    )
}

/// Which private directory of a node holds `path`.
pub(super) fn private(path: &Path) -> Option<&'static str> {
    PRIVATE.into_iter().find(|private| path.starts_with(private))
}

/// The program that starts programs.
#[derive(Debug)]
pub(super) struct Launcher {
    name: &'static str,
    /// Links followed.
    path: PathBuf,
}

/// Finds the launcher.
pub(super) fn launcher(implementation: vc::Implementation) -> Result<Launcher, Failure> {
    let (name, product, package) = match implementation {
        vc::Implementation::MPICH => (Implementation::Mpich.launcher(), "MPICH", "mpich"),
        _ => (Implementation::OpenMpi.launcher(), "Open MPI", "openmpi-bin"),
    };
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|d| d.join(name)).find(|file| file.is_file());
    let found = found.and_then(|file| fs::canonicalize(file).ok());
    found.map(|path| Launcher { name, path }).ok_or_else(|| {
        Failure::input(format!(
            "{name} is not in PATH; install {product} (on Debian: `apt-get install {package}`), or correct PATH"
        ))
    })
}

/// A report that cannot be written is noticed before anything is made. It takes the place of a file of that name, and of
/// nothing else: not of a device, nor of a link such as `/dev/stdout`.
pub(super) fn check_report(report: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = report else { return Ok(()) };
    let refuse = |why: &str| Err(Failure::input(format!("--report {}: {why}", path.display())));
    if path == Path::new("-") || path.file_name().is_none() {
        return refuse("is no name of a file; give one, the report does not go to standard output");
    }
    let ends_with_slash = path.as_os_str().as_encoded_bytes().ends_with(b"/");
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => return refuse("is a directory; give the name of a file"),
        Ok(meta) if !meta.is_file() => {
            return refuse("is a link or a device, not a file; give the name of a file");
        }
        _ if ends_with_slash => return refuse("ends with `/`; give the name of a file"),
        _ => {}
    }
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !parent.is_dir() {
        return refuse(&format!("{} is not a directory; make it", parent.display()));
    }
    // A file without a name: nothing is left of it, and it tells of a read-only file system too.
    match tempfile::tempfile_in(parent) {
        Ok(_) => Ok(()),
        Err(error) => {
            refuse(&format!("{} cannot be written to: {error}; choose another directory", parent.display()))
        }
    }
}

/// Refuses a state directory that is none, or lies within a dataset: what a run writes there would change the source while it is read.
pub(super) fn check_state_dir(state: &Path, data: &[DataPlan]) -> Result<(), Failure> {
    if let Some(file) = state.ancestors().find(|p| p.symlink_metadata().is_ok()).filter(|p| !p.is_dir()) {
        return Err(Failure::input(format!(
            "--state-dir {}: {} is not a directory; give a directory",
            state.display(),
            file.display()
        )));
    }
    let absolute = env::current_dir().map_or_else(|_| state.to_owned(), |here| here.join(state));
    let Ok(state_place) = place(&absolute) else { return Ok(()) };
    for (index, data) in data.iter().enumerate() {
        let Origin::Path(source) = &data.origin else { continue };
        if fs::canonicalize(source).is_ok_and(|source| source.is_dir() && state_place.starts_with(source)) {
            return Err(Failure::input(format!(
                "--state-dir {}: lies within {}, the source of spec.data[{index}], which must not change while it is read; \
                 choose another directory",
                state.display(),
                source.display()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridcast_crds::source::Strategy;

    fn dataset(mount_path: &Path) -> DataPlan {
        DataPlan {
            name: "d".into(),
            mount_path: mount_path.to_owned(),
            origin: Origin::Keys { files: std::collections::BTreeMap::new(), secret: false },
            strategy: Strategy::Stable,
        }
    }

    fn refused(paths: &[&Path]) -> Option<String> {
        let data: Vec<DataPlan> = paths.iter().map(|path| dataset(path)).collect();
        let launcher = Launcher { name: "mpirun.openmpi", path: "/opt/mpi/bin/orterun".into() };
        check_mount_paths(&data, Some(&launcher)).err().map(|e| e.to_string())
    }

    #[test]
    fn a_mount_path_hides_nothing_that_is_needed() {
        let dir = tempfile::tempdir().unwrap();
        let real = fs::canonicalize(dir.path()).unwrap();
        let link = |to: &str, name: &str| {
            std::os::unix::fs::symlink(to, real.join(name)).unwrap();
            real.join(name)
        };
        fs::write(real.join("file"), "").unwrap();
        for (paths, part) in [
            (vec![Path::new("/tmp").to_owned()], "would hide /tmp"),
            (vec![link("/etc", "etc")], "would hide /etc"),
            (vec![PathBuf::from("/opt/mpi")], "would hide mpirun.openmpi"),
            (vec![real.join("file")], "is a file"),
            (vec![real.join("file/below")], "is a file"),
            (vec![link("gone", "broken").join("a")], "leads nowhere"),
            (vec![real.join("a"), link(".", "here").join("a")], "are one directory"),
        ] {
            let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
            let message = refused(&paths).unwrap_or_default();
            assert!(message.contains(part), "{paths:?}: {message}");
        }
        for path in ["/data", "/scratch", "/data/ics", "/etc/ramses", "/nowhere/at/all"] {
            assert_eq!(refused(&[Path::new(path)]), None);
        }
    }
}
