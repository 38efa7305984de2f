//! What does the kernel say is mounted where?

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// The kernel appends this to the root of a mount whose directory has been removed.
const DELETED: &[u8] = b"//deleted";

/// One line of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    id: u32,
    parent: u32,
    /// `major:minor` of the file system.
    device: String,
    /// The directory of that file system that the mount shows.
    root: PathBuf,
    point: PathBuf,
    options: String,
}

/// All mounts of this process' namespace.
#[derive(Debug)]
pub(super) struct Table(Vec<Mount>);

impl Mount {
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|b| *b == b' ');
        let mut next = || fields.next();
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
        Some(Self {
            id: text(next()?)?.parse().ok()?,
            parent: text(next()?)?.parse().ok()?,
            device: text(next()?)?,
            root: unescape(next()?),
            point: unescape(next()?),
            options: text(next()?)?,
        })
    }

    pub(super) fn point(&self) -> &Path {
        &self.point
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.options.split(',').any(|option| option == "ro")
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.root.as_os_str().as_bytes().ends_with(DELETED)
    }
}

/// Space, tab, line end and backslash are written as three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let octal = match *after {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] if first == b'\\' => {
                Some((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'))
            }
            _ => None,
        };
        out.push(octal.unwrap_or(first));
        rest = if octal.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(OsString::from_vec(out))
}

impl Table {
    pub(super) fn read() -> io::Result<Self> {
        fs::read("/proc/self/mountinfo").map(|bytes| Self::parse(&bytes))
    }

    fn parse(bytes: &[u8]) -> Self {
        Self(bytes.split(|b| *b == b'\n').filter_map(Mount::parse).collect())
    }

    pub(super) fn mounts(&self) -> &[Mount] {
        &self.0
    }

    /// The mount that is seen at exactly this path: of several, the one that no other lies upon.
    pub(super) fn top(&self, point: &Path) -> Option<&Mount> {
        let here: Vec<&Mount> = self.0.iter().filter(|mount| mount.point == point).collect();
        here.iter().find(|mount| !here.iter().any(|other| other.parent == mount.id)).copied()
    }

    /// Whether a mount shows a directory that is below `directory` (or was, until it was removed).
    pub(super) fn shows(&self, mount: &Mount, directory: &Path) -> bool {
        let covering = directory.ancestors().find_map(|above| self.top(above));
        let covering = covering.and_then(|cover| {
            let below = directory.strip_prefix(&cover.point).ok()?;
            // Joining nothing would add a slash.
            let base = if below.as_os_str().is_empty() { cover.root.clone() } else { cover.root.join(below) };
            Some((&cover.device, base))
        });
        // File systems that are mounted somewhere below it hold datasets, too.
        let inner =
            self.0.iter().filter(|inner| inner.point != directory && inner.point.starts_with(directory));
        let inner = inner.map(|inner| (&inner.device, inner.root.clone()));
        covering
            .into_iter()
            .chain(inner)
            .any(|(device, base)| *device == mount.device && mount.root.starts_with(&base))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 8:2 / /var rw,relatime shared:2 - ext4 /dev/sda2 rw
31 30 8:9 / /var/lib/gridcast/data/big rw - xfs /dev/sdb rw
40 30 8:2 /lib/gridcast/data/team/ics /k/pods/1/volumes/kubernetes.io~csi/a/mount ro,nosuid,nodev - ext4 /dev/sda2 rw
41 40 8:2 /lib/gridcast/data/team/two\\040words//deleted /k/pods/1/volumes/kubernetes.io~csi/a/mount rw - ext4 /dev/sda2 rw
42 30 8:9 /team/x /k/b ro - xfs /dev/sdb rw
43 30 8:2 /lib/gridcast/database /k/c ro - ext4 /dev/sda2 rw
44 30 8:1 /lib/gridcast/data/team/ics /k/d ro - ext4 /dev/sda1 rw
not a line
";

    #[test]
    fn the_table_tells_what_is_on_top_and_where_it_comes_from() {
        let table = Table::parse(TABLE);
        assert_eq!(table.mounts().len(), 8);
        let top = table.top(Path::new("/k/pods/1/volumes/kubernetes.io~csi/a/mount")).unwrap();
        assert_eq!((top.id, top.is_deleted(), top.is_read_only()), (41, true, false));
        assert!(top.root.to_str().unwrap().contains("two words"));
        let data = Path::new("/var/lib/gridcast/data");
        let shown: Vec<u32> =
            table.mounts().iter().filter(|mount| table.shows(mount, data)).map(|mount| mount.id).collect();
        assert_eq!(shown, [31, 40, 41, 42]);
        assert!(table.top(Path::new("/k")).is_none());
    }
}
