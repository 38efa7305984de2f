//! Which directories of a node may be read as the source of a dataset?

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use super::failure::Failure;

/// Directories below which datasets may be read.
#[derive(Clone, Debug)]
pub(crate) struct Roots(Vec<PathBuf>);

impl Roots {
    pub(crate) fn new(roots: Vec<PathBuf>) -> Self {
        Self(roots)
    }

    /// Fails unless `path`, its symlinks resolved, lies below a root.
    pub(crate) fn check(&self, path: &Path) -> Result<(), Failure> {
        match fs::canonicalize(path) {
            Ok(real) => self.admit(path, &real),
            // Who may not read there does not learn what is there.
            Err(_) if !self.0.iter().any(|root| path.starts_with(root)) => Err(self.forbidden(path)),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Err(Failure::SourceMissing { path: path.display().to_string() })
            }
            Err(error) => Err(Failure::reading(&path.display().to_string(), &error)),
        }
    }

    /// The same for the directory that was opened for `path`.
    pub(crate) fn check_open(&self, path: &Path, opened: &OwnedFd) -> Result<(), Failure> {
        let link = format!("/proc/self/fd/{}", opened.as_raw_fd());
        let real = fs::read_link(&link).map_err(|error| Failure::reading(&link, &error))?;
        self.admit(path, &real)
    }

    fn admit(&self, path: &Path, real: &Path) -> Result<(), Failure> {
        // A root may be a symlink itself.
        let below = |root: &PathBuf| fs::canonicalize(root).is_ok_and(|root| real.starts_with(root));
        if self.0.iter().any(below) { Ok(()) } else { Err(self.forbidden(path)) }
    }

    fn forbidden(&self, path: &Path) -> Failure {
        let roots: Vec<String> = self.0.iter().map(|root| root.display().to_string()).collect();
        let known = if roots.is_empty() { "it has none".to_owned() } else { roots.join(", ") };
        let detail = format!("they are given by --source-root ({known})");
        Failure::SourceForbidden { path: path.display().to_string(), detail }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_lies_below_a_root_may_be_read_whatever_links_lead_there() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        for directory in ["exports/ics", "private/keys", "exports-old"] {
            fs::create_dir_all(at(directory)).unwrap();
        }
        symlink(at("private/keys"), at("exports/way-out")).unwrap();
        symlink(at("exports/ics"), at("private/way-in")).unwrap();
        symlink(at("exports"), at("root")).unwrap();
        let roots = Roots::new(vec![at("root")]);
        for fine in ["exports/ics", "exports", "root/ics", "private/way-in"] {
            roots.check(&at(fine)).unwrap();
        }
        for refused in
            ["exports/way-out", "private/keys", "exports-old", "exports/../private/keys", "private/absent"]
        {
            let failure = roots.check(&at(refused)).unwrap_err();
            assert_eq!(failure.reason(), "SourceForbidden", "{refused}");
            assert!(failure.to_string().contains("--source-root ("), "{failure}");
        }
        assert_eq!(roots.check(&at("root/absent")).unwrap_err().reason(), "SourceMissing");
        roots.check_open(&at("x"), &File::open(at("exports/ics")).unwrap().into()).unwrap();
        roots.check_open(&at("x"), &File::open(at("exports/way-out")).unwrap().into()).unwrap_err();
        assert_eq!(Roots::new(Vec::new()).check(&at("exports")).unwrap_err().reason(), "SourceForbidden");
    }
}
