//! What is there?
//!
//! For now the object alone, as the watch delivered it: nothing that a plan of this version depends on lives elsewhere.
//! A stale object is harmless, since applying a plan twice is applying it once.

use kube::{
    Resource as _, ResourceExt as _,
    core::{DeserializeGuard, error_boundary::InvalidObject},
};

use crate::{failure::Error, kind::Kind};

/// Everything that a plan may look at.
#[derive(Clone, Debug)]
pub struct Observed<K> {
    /// The object.
    pub object: K,
}

/// Reads what a plan for `object` depends on.
pub fn observe<K: Kind>(object: &DeserializeGuard<K>) -> Result<Observed<K>, Error> {
    match &object.0 {
        Ok(object) => Ok(Observed { object: object.clone() }),
        Err(InvalidObject { error, .. }) => Err(Error::Unreadable {
            what: K::kind(&()).into_owned(),
            name: format!("{}/{}", object.meta().namespace.as_deref().unwrap_or_default(), object.name_any()),
            detail: error.clone(),
        }),
    }
}
