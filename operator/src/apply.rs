//! Writes a plan with server-side apply.

use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::{failure::Error, kind::Kind, plan::Plan};

/// Field manager of every write.
pub const FIELD_MANAGER: &str = "gridcast-operator";

/// Writes `plan` for `object`. An object that is gone by now needs nothing.
pub async fn apply<K: Kind>(client: &Client, object: &K, plan: &Plan) -> Result<(), Error> {
    let Plan { status } = plan;
    let Some(status) = status else { return Ok(()) };
    let api: Api<K> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    let (name, kind) = (object.name_any(), K::kind(&()));
    let patch = json!({ "apiVersion": K::api_version(&()), "kind": kind, "status": status });
    // Forced: nobody else has a reason to write these fields, and a conflict could never be resolved by waiting.
    match api.patch_status(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(source) => Err(Error::Write { what: kind.into_owned(), name, source: Box::new(source) }),
    }
}
