//! How is an object written that has a name which somebody else may have taken?
//!
//! It is created, and never taken over: where one of the name is there, it is changed only after the API server has said that
//! it belongs to the same owner, and only while it is that very object. To ask takes no permission to read: a JSON patch that
//! consists of nothing but a test changes nothing, and is refused where the test fails.
//!
//! What is created and later applied has two entries among its managed fields, one of the creation and one of the apply.
//! So values change as asked, and lists that are replaced as a whole; but an entry of a map (a label, say) that is no longer
//! named stays, because the creation's entry still owns it. Nothing that is made this way has such entries.

use json_patch::{PatchOperation, TestOperation, jsonptr::PointerBuf};
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};

use super::{FIELD_MANAGER, Object, api, delete_by_uid, settle};
use crate::{context::Context, failure::Error, kind::Owner, metrics::Verb};

/// Tries at an object that is made and removed by others at the same time; then the next reconciliation goes on.
const TRIES: usize = 3;

/// Makes or changes `object`, whose name and namespace are in it, into what it says, unless one of its name belongs to
/// somebody else than `owner`, its first owner: that is left alone, and is [`Error::NameTaken`].
///
/// `known` is the UID of the object if it is known to be `owner`'s, which spares the questions.
pub async fn own<K: Object>(
    context: &Context,
    object: &K,
    owner: &Owner,
    known: Option<String>,
) -> Result<K, Error> {
    let mut known = known;
    let mut tries = 0;
    loop {
        tries += 1;
        let refused = match known.take() {
            Some(uid) => match change(context, object, &uid).await {
                Err(error) if is_another(&error) => error,
                result => return result,
            },
            None => match create(context, object).await {
                // A quota that is used up, by this very object perhaps, speaks before it is seen that the name is there.
                Err(error) if error.says("AlreadyExists") || error.code() == Some(403) => error,
                result => return result,
            },
        };
        if tries == TRIES {
            return Err(refused);
        }
        let forbidden = refused.code() == Some(403);
        if forbidden || refused.says("AlreadyExists") {
            let namespace = object.namespace().unwrap_or_default();
            known = prove::<K>(context, &namespace, &object.name_any(), owner).await?;
            if forbidden && known.is_none() {
                return Err(refused);
            }
        }
    }
}

/// Deletes the object of this name, if it belongs to `owner`. One that is gone, or is somebody else's, is as wanted.
///
/// `known` is its UID if it is known to be `owner`'s.
pub async fn delete_own<K: Object>(
    context: &Context,
    namespace: &str,
    name: &str,
    owner: &Owner,
    known: Option<String>,
) -> Result<(), Error> {
    let uid = match known {
        Some(uid) => Some(uid),
        None => match prove::<K>(context, namespace, name, owner).await {
            Err(Error::NameTaken { .. }) => None,
            result => result?,
        },
    };
    let Some(uid) = uid else { return Ok(()) };
    let api: Api<K> = Api::namespaced(context.client.clone(), namespace);
    delete_by_uid(context, &api, name, Some(uid), None).await.map(drop)
}

async fn create<K: Object>(context: &Context, object: &K) -> Result<K, Error> {
    let (api, name) = (api::<K>(context, object), object.name_any());
    let parameters = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
    settle::<K, _>(context, Verb::Create, &name, api.create(&parameters, object)).await
}

async fn change<K: Object>(context: &Context, object: &K, uid: &str) -> Result<K, Error> {
    let (api, name) = (api::<K>(context, object), object.name_any());
    // `apiVersion` and `kind` are part of what is applied, and typed objects serialize without.
    let mut patch = serde_json::to_value(object).unwrap_or_default();
    if let Some(fields) = patch.as_object_mut() {
        fields.insert("apiVersion".into(), K::api_version(&()).into());
        fields.insert("kind".into(), K::kind(&()).into());
        fields.remove("status");
    }
    patch["metadata"]["uid"] = uid.into();
    // Forced: nobody else has a reason to write these fields, and a conflict could never be resolved by waiting.
    let (parameters, patch) = (PatchParams::apply(FIELD_MANAGER).force(), Patch::Apply(patch));
    settle::<K, _>(context, Verb::Patch, &name, api.patch(&name, &parameters, &patch)).await
}

/// The API server has no such object any more: one of the name that has another UID is invalid, none is a conflict.
fn is_another(error: &Error) -> bool {
    match error.code() {
        Some(409) => true,
        Some(422) => fields(error).any(|field| field == "metadata.uid"),
        _ => false,
    }
}

/// The fields that the API server does not take.
fn fields(error: &Error) -> impl Iterator<Item = &str> {
    let details = error.status().and_then(|status| status.details.as_ref());
    let causes = details.into_iter().flat_map(|details| &details.causes);
    causes.map(|cause| cause.field.as_str()).filter(|field| !field.is_empty())
}

/// The UID of the object of this name, if it belongs to `owner`; none if there is no such object any more.
async fn prove<K: Object>(
    context: &Context,
    namespace: &str,
    name: &str,
    owner: &Owner,
) -> Result<Option<String>, Error> {
    let api: Api<K> = Api::namespaced(context.client.clone(), namespace);
    let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    let test = is_owned_by(&owner.uid);
    let answer = api.patch_metadata(name, &parameters, &test);
    match settle::<K, _>(context, Verb::Patch, name, answer).await {
        Ok(found) => Ok(found.metadata.uid),
        Err(error) if error.code() == Some(404) => Ok(None),
        // An object that is invalid by now is refused by its fields, a test that fails is not.
        Err(error) if error.code() == Some(422) && fields(&error).next().is_none() => Err(Error::NameTaken {
            what: K::kind(&()).into_owned(),
            name: name.to_owned(),
            owner: owner.to_string(),
        }),
        Err(error) => Err(error),
    }
}

/// A patch that changes nothing, and is refused where the first owner is another.
fn is_owned_by(uid: &str) -> Patch<()> {
    let path = PointerBuf::from_tokens(["metadata", "ownerReferences", "0", "uid"]);
    let test = PatchOperation::Test(TestOperation { path, value: uid.into() });
    Patch::Json(json_patch::Patch(vec![test]))
}
