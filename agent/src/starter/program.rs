//! Which file does a command name mean, in the *given* environment?
//!
//! The C library would look in the starter's own `PATH`; a command brings its own. What is missing is told apart
//! from what is there but cannot be executed, as shells do with 127 and 126.

use std::fs;
use std::path::{Path, PathBuf};

use nix::fcntl::AtFlags;
use nix::unistd::{AccessFlags, faccessat};
use thiserror::Error;

/// Searched when the environment has no `PATH`, as the C library and sshd do.
pub const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// Why a name is not a program.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ProgramError {
    /// No such file, neither as given nor anywhere in the search path.
    #[error("program `{name}` was not found {place}: install it on this node or give its full path")]
    NotFound {
        /// As asked for.
        name: String,
        /// Where it was looked for.
        place: String,
    },
    /// The file is there, but is a directory or lacks the permission to execute.
    #[error("`{path}` cannot be executed: {why}")]
    NotExecutable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it and what to do.
        why: &'static str,
    },
}

impl ProgramError {
    /// `ProgramNotFound` or `NotExecutable`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "ProgramNotFound",
            Self::NotExecutable { .. } => "NotExecutable",
        }
    }

    /// What a shell would exit with: 127 or 126.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            Self::NotExecutable { .. } => 126,
        }
    }
}

/// Finds the file of `name`. A name with a slash is taken relative to `directory`; any other is searched in `path`
/// (colon-separated, an empty entry meaning `directory`, [`DEFAULT_PATH`] if `None`), where the first executable
/// wins and a file that is not executable is reported only if no later one is. A launcher of MPI may have another name.
pub fn find_program(name: &str, path: Option<&str>, directory: &Path) -> Result<PathBuf, ProgramError> {
    search(name, path, directory).or_else(|error| {
        let mut others = gridcast_core::mpi::other_names(name).iter();
        others.find_map(|other| search(other, path, directory).ok()).ok_or(error)
    })
}

fn search(name: &str, path: Option<&str>, directory: &Path) -> Result<PathBuf, ProgramError> {
    let missing = |place: String| ProgramError::NotFound { name: name.to_owned(), place };
    if name.is_empty() {
        return Err(missing("(the command is empty)".to_owned()));
    }
    if name.contains('/') {
        let file = directory.join(name);
        return match check(&file) {
            Some(Ok(())) => Ok(file),
            Some(Err(why)) => Err(ProgramError::NotExecutable { path: file, why }),
            None => Err(missing(format!("at {}", file.display()))),
        };
    }
    let path = path.unwrap_or(DEFAULT_PATH);
    let mut refused = None;
    for entry in path.split(':') {
        let file = directory.join(entry).join(name);
        match check(&file) {
            Some(Ok(())) => return Ok(file),
            Some(Err(why)) if refused.is_none() => {
                refused = Some(ProgramError::NotExecutable { path: file, why });
            }
            _ => {}
        }
    }
    Err(refused.unwrap_or_else(|| missing(format!("in PATH {path}"))))
}

/// `None` if there is no such file, else whether this process may execute it.
fn check(file: &Path) -> Option<Result<(), &'static str>> {
    let metadata = fs::metadata(file).ok()?;
    if metadata.is_dir() {
        return Some(Err("it is a directory"));
    }
    // AT_EACCESS: the effective user decides, as execve does.
    let allowed = faccessat(nix::fcntl::AT_FDCWD, file, AccessFlags::X_OK, AtFlags::AT_EACCESS);
    Some(allowed.map_err(|_| "it lacks the permission to execute (chmod +x), or lies on a noexec mount"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn place(directory: &Path, name: &str, mode: u32) -> PathBuf {
        let file = directory.join(name);
        fs::write(&file, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn a_launcher_of_another_name_does_where_its_own_is_not_there() {
        let root = tempfile::tempdir().unwrap();
        let place = |name: &str| {
            let file = root.path().join(name);
            fs::write(&file, "").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
            file
        };
        let find = |name: &str| find_program(name, root.path().to_str(), Path::new("/"));
        assert_eq!(find("mpirun.openmpi").unwrap_err().reason(), "ProgramNotFound");
        let plain = place("mpirun");
        assert_eq!(find("mpirun.openmpi"), Ok(plain));
        let own = place("mpirun.openmpi");
        assert_eq!(find("mpirun.openmpi"), Ok(own));
        assert!(find("mpiexec.mpich").unwrap_err().to_string().contains("`mpiexec.mpich` was not found"));
    }

    #[test]
    fn the_first_executable_of_the_given_path_wins() {
        let root = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| root.path().join(name));
        fs::create_dir_all(&one).unwrap();
        fs::create_dir_all(&two).unwrap();
        place(&one, "tool", 0o644);
        let good = place(&two, "tool", 0o755);
        let path = format!("{}:{}", one.display(), two.display());
        assert_eq!(find_program("tool", Some(&path), Path::new("/")), Ok(good));
        // Relative entries belong to the command's directory, not to ours.
        assert_eq!(find_program("tool", Some("two"), root.path()), Ok(two.join("tool")));
    }

    #[test]
    fn missing_and_forbidden_are_told_apart() {
        let root = tempfile::tempdir().unwrap();
        place(root.path(), "plain", 0o644);
        fs::create_dir(root.path().join("dir")).unwrap();
        let path = root.path().to_str().unwrap();
        for name in ["plain", "./plain", "dir", "./dir"] {
            let error = find_program(name, Some(path), root.path()).unwrap_err();
            assert_eq!((error.reason(), error.exit_code()), ("NotExecutable", 126), "{name}");
        }
        for name in ["absent", "./absent", "plain/absent", ""] {
            let error = find_program(name, Some(path), root.path()).unwrap_err();
            assert_eq!((error.reason(), error.exit_code()), ("ProgramNotFound", 127), "{name}");
        }
        let error = find_program("absent", Some(path), root.path()).unwrap_err().to_string();
        assert!(error.contains("`absent`") && error.contains(path), "{error}");
    }

    #[test]
    fn without_a_path_the_usual_places_are_searched() {
        assert!(find_program("sh", None, Path::new("/nonexistent")).is_ok());
        assert!(find_program("sh", Some(""), Path::new("/nonexistent")).is_err());
    }
}
