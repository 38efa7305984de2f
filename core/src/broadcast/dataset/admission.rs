//! May this entry follow those that came before it?

use super::entry::{Entry, EntryError, EntryKind, cmp_paths, display};

/// Most entries of one dataset: they are held in memory by every member.
pub const MAX_ENTRIES: u64 = 4 << 20;
/// Most extents of all files of one dataset, for the same reason.
pub const MAX_EXTENTS: u64 = 4 << 20;

/// Checks entries one after the other, as they arrive, with the memory of one path.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    last: Option<Last>,
    entries: u64,
    extents: u64,
    files: u64,
    size_bytes: u64,
}

#[derive(Clone, Debug)]
struct Last {
    path: Vec<u8>,
    is_directory: bool,
}

/// Why an entry may not follow those before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant says it")]
pub enum AdmissionError {
    #[error(transparent)]
    Entry(#[from] EntryError),
    #[error("the first entry is `{path}`; send the root, a directory with an empty path, first")]
    RootMissing { path: String },
    #[error("`{path}` came twice; send every path once")]
    Duplicate { path: String },
    #[error("`{path}` came after `{after}`; send entries in canonical order, component by component")]
    Order { path: String, after: String },
    #[error("`{path}` is in `{parent}`, which was not sent before as a directory; send the directory first")]
    NoParent { path: String, parent: String },
    #[error("more than {MAX_ENTRIES} entries; pack small files, or split the dataset")]
    TooManyEntries,
    #[error(
        "`{path}`: the files have more than {MAX_EXTENTS} extents; copy sparse files without their holes"
    )]
    TooManyExtents { path: String },
    #[error("`{path}`: the files have more than 2^64 - 1 bytes")]
    TooLarge { path: String },
}

impl Admission {
    /// Nothing admitted yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Admits `entry`, or says why not; after a refusal the dataset must be given up.
    pub fn admit(&mut self, entry: &Entry) -> Result<(), AdmissionError> {
        entry.check()?;
        self.check_place(entry)?;
        self.entries += 1;
        if self.entries > MAX_ENTRIES {
            return Err(AdmissionError::TooManyEntries);
        }
        self.extents += entry.extents().len() as u64;
        if self.extents > MAX_EXTENTS {
            return Err(AdmissionError::TooManyExtents { path: entry.display_path() });
        }
        self.size_bytes = self
            .size_bytes
            .checked_add(entry.data_bytes())
            .ok_or_else(|| AdmissionError::TooLarge { path: entry.display_path() })?;
        self.files += u64::from(matches!(entry.kind, EntryKind::File { .. }));
        self.last = Some(Last { path: entry.path.clone(), is_directory: entry.is_directory() });
        Ok(())
    }

    /// Entries admitted.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Regular files among them.
    pub fn files(&self) -> u64 {
        self.files
    }

    /// Their bytes outside holes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// In canonical order all that is in a directory follows it without a gap: a parent that was sent is the entry
    /// before, or a parent of that one.
    fn check_place(&self, entry: &Entry) -> Result<(), AdmissionError> {
        let path = || entry.display_path();
        let (last, parent) = match (&self.last, entry.parent()) {
            (None, None) => return Ok(()),
            (None, Some(_)) => return Err(AdmissionError::RootMissing { path: path() }),
            (Some(_), None) => return Err(AdmissionError::Duplicate { path: path() }),
            (Some(last), Some(parent)) => (last, parent),
        };
        match cmp_paths(&entry.path, &last.path) {
            std::cmp::Ordering::Greater => {}
            std::cmp::Ordering::Equal => return Err(AdmissionError::Duplicate { path: path() }),
            std::cmp::Ordering::Less => {
                return Err(AdmissionError::Order { path: path(), after: display(&last.path) });
            }
        }
        let is_last = parent == last.path && last.is_directory;
        let is_above = parent.is_empty()
            || (last.path.starts_with(parent) && last.path.get(parent.len()) == Some(&b'/'));
        if is_last || is_above {
            Ok(())
        } else {
            Err(AdmissionError::NoParent { path: path(), parent: display(parent) })
        }
    }
}
