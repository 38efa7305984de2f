//! Files that are there whole or not at all.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
};

/// Writes a file beside `path` and renames it there, so that what stood there stays where this fails. A link is
/// followed; what is no regular file (`/dev/stdout`, `/dev/null`, a FIFO) is written to and never replaced.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_file() => replace(&path.canonicalize()?, bytes),
        Ok(_) => fs::OpenOptions::new().write(true).open(path)?.write_all(bytes),
        Err(_) => replace(path, bytes),
    }
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let beside = path.with_file_name(name);
    let written = File::create(&beside).and_then(|mut f| {
        f.write_all(bytes)?;
        f.sync_all()
    });
    written.and_then(|()| fs::rename(&beside, path)).inspect_err(|_| {
        let _ = fs::remove_file(&beside);
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt as _, symlink};

    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_stays_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        write(&path, b"one").unwrap();
        write(&path, b"2").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"2");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(write(&dir.path().join("gone/a.json"), b"x").is_err());
    }

    #[test]
    fn a_link_stays_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        fs::write(&file, "old").unwrap();
        symlink("file", &link).unwrap();
        write(&link, b"new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
    }

    #[test]
    fn a_device_stays_a_device() {
        let dir = tempfile::tempdir().unwrap();
        // Through a link, so that a mistake would not hit the machine.
        let link = dir.path().join("null");
        symlink("/dev/null", &link).unwrap();
        write(&link, b"x").unwrap();
        assert!(fs::metadata(&link).unwrap().file_type().is_char_device());
        assert!(link.is_symlink());
    }
}
