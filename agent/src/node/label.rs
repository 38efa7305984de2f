//! May pods read the node's datasets where SELinux is enforced?
//!
//! Only what is labelled as the content of containers, in no category of a particular pod. Files inherit the label of the
//! directory that they are made in, so that of the topmost one decides; it has none where SELinux is not there.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// What containers may read, in no category.
const LABEL: &[u8] = b"system_u:object_r:container_file_t:s0\0";
/// The type in it.
const TYPE: &str = "container_file_t";
const ATTRIBUTE: &std::ffi::CStr = c"security.selinux";
/// Longer than any label that means anything here.
const MAX_BYTES: usize = 4096;

/// Labels `directory` if it is labelled at all, and otherwise than it has to be. Says whether it did.
pub(super) fn for_containers(directory: &Path) -> io::Result<bool> {
    let path = CString::new(directory.as_os_str().as_bytes())?;
    let Some(found) = label(&path)? else { return Ok(false) };
    let type_of = |label: &[u8]| String::from_utf8_lossy(label).split(':').nth(2).map(str::to_owned);
    if type_of(&found).as_deref() == Some(TYPE) {
        // Perhaps with categories that somebody chose.
        return Ok(false);
    }
    set(&path)?;
    Ok(true)
}

/// None where the file system keeps no labels, or this directory has none.
#[allow(unsafe_code)]
fn label(path: &CString) -> io::Result<Option<Vec<u8>>> {
    let mut value = vec![0_u8; MAX_BYTES];
    // SAFETY: both names end with NUL, and the kernel writes at most `MAX_BYTES` bytes to `value`, which has them.
    let length =
        unsafe { libc::lgetxattr(path.as_ptr(), ATTRIBUTE.as_ptr(), value.as_mut_ptr().cast(), MAX_BYTES) };
    let Ok(length) = usize::try_from(length) else {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ENODATA | libc::EOPNOTSUPP) => Ok(None),
            _ => Err(error),
        };
    };
    value.truncate(length);
    Ok(Some(value))
}

#[allow(unsafe_code)]
fn set(path: &CString) -> io::Result<()> {
    // SAFETY: both names end with NUL, and `LABEL` has as many bytes as it is said to have.
    let status =
        unsafe { libc::lsetxattr(path.as_ptr(), ATTRIBUTE.as_ptr(), LABEL.as_ptr().cast(), LABEL.len(), 0) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn give(path: &CString, label: &[u8]) {
        #[allow(unsafe_code)]
        // SAFETY: as in `set`.
        let status = unsafe {
            libc::lsetxattr(path.as_ptr(), ATTRIBUTE.as_ptr(), label.as_ptr().cast(), label.len(), 0)
        };
        assert_eq!(status, 0, "{}", io::Error::last_os_error());
    }

    #[test]
    fn what_is_labelled_for_the_system_is_labelled_for_containers_and_the_rest_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = CString::new(directory.path().as_os_str().as_bytes()).unwrap();
        assert!(!for_containers(directory.path()).unwrap());
        assert_eq!(label(&path).unwrap(), None, "no SELinux, no label");

        give(&path, b"system_u:object_r:var_lib_t:s0\0");
        assert!(for_containers(directory.path()).unwrap());
        assert_eq!(label(&path).unwrap().unwrap(), LABEL);
        assert!(!for_containers(directory.path()).unwrap(), "once");

        let chosen = b"system_u:object_r:container_file_t:s0:c1,c2\0";
        give(&path, chosen);
        assert!(!for_containers(directory.path()).unwrap());
        assert_eq!(label(&path).unwrap().unwrap(), chosen);
        assert!(for_containers(&directory.path().join("missing")).is_err());
    }
}
