//! Where do all keys come from?
//!
//! Of 32 random bytes in a Secret of the operator's own namespace, made by whichever replica comes first. The
//! certificate of the agents' authority is published beside it, in a ConfigMap that every agent mounts.

use std::collections::BTreeMap;

use aws_lc_rs::{hkdf, rand};
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};

use super::{Authority, AuthorityError};
use crate::{apply::FIELD_MANAGER, stores::MANAGED_BY};

/// The Secret that holds the root.
pub const ROOT_SECRET: &str = "gridcast-root";
/// The ConfigMap that publishes the certificate of the agents' authority.
pub const CA_CONFIG_MAP: &str = "gridcast-ca";
const ROOT_KEY: &str = "root";
const CA_KEY: &str = "ca.pem";
/// Keeps these derivations apart from any other of the same bytes.
const SALT: &[u8] = b"gridcast.io/v1";

/// The secret that every key is derived from.
#[derive(Clone)]
pub struct Root([u8; 32]);

impl std::fmt::Debug for Root {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Root(..)")
    }
}

impl Root {
    /// A new one.
    pub fn random() -> Result<Self, AuthorityError> {
        let mut bytes = [0; 32];
        rand::fill(&mut bytes).map_err(|_| AuthorityError::Random)?;
        Ok(Self(bytes))
    }

    /// The one that is these bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// 32 bytes for `label` (HKDF-SHA256).
    pub(super) fn derive(&self, label: &str) -> Result<[u8; 32], AuthorityError> {
        let mut out = [0; 32];
        hkdf::Salt::new(hkdf::HKDF_SHA256, SALT)
            .extract(&self.0)
            .expand(&[label.as_bytes()], hkdf::HKDF_SHA256)
            .and_then(|okm| okm.fill(&mut out))
            .map_err(|_| AuthorityError::Random)?;
        Ok(out)
    }
}

/// Reads the root of `namespace`, or makes it, and publishes the agents' authority.
pub async fn load_or_create(client: Client, namespace: &str) -> Result<Authority, AuthorityError> {
    let authority = Authority::new(root(&Api::namespaced(client.clone(), namespace), namespace).await?)?;
    publish(&Api::namespaced(client, namespace), namespace, authority.agents_ca_pem()).await?;
    Ok(authority)
}

async fn root(secrets: &Api<Secret>, namespace: &str) -> Result<Root, AuthorityError> {
    let failed = |what| move |source| failed(what, "Secret", namespace, ROOT_SECRET, source);
    if let Some(found) = secrets.get_opt(ROOT_SECRET).await.map_err(failed("read"))? {
        return read(&found, namespace);
    }
    let root = Root::random()?;
    let secret = Secret {
        metadata: metadata(namespace, ROOT_SECRET),
        data: Some(BTreeMap::from([(ROOT_KEY.to_owned(), ByteString(root.0.to_vec()))])),
        immutable: Some(true),
        ..Secret::default()
    };
    match secrets.create(&parameters(), &secret).await {
        Ok(_) => {
            tracing::info!(secret = ROOT_SECRET, "made the root of all keys");
            Ok(root)
        }
        // Another replica was faster.
        Err(kube::Error::Api(status)) if status.code == 409 => {
            read(&secrets.get(ROOT_SECRET).await.map_err(failed("read"))?, namespace)
        }
        Err(error) => Err(failed("create")(error)),
    }
}

fn read(secret: &Secret, namespace: &str) -> Result<Root, AuthorityError> {
    let bytes = secret.data.as_ref().and_then(|data| data.get(ROOT_KEY)).map_or(&[][..], |value| &value.0);
    let root = bytes.try_into().map_err(|_| AuthorityError::Root {
        namespace: namespace.to_owned(),
        name: ROOT_SECRET,
        key: ROOT_KEY,
        bytes: bytes.len(),
    })?;
    Ok(Root(root))
}

async fn publish(maps: &Api<ConfigMap>, namespace: &str, ca_pem: &str) -> Result<(), AuthorityError> {
    let failed = |what| move |source| failed(what, "ConfigMap", namespace, CA_CONFIG_MAP, source);
    let found = maps.get_opt(CA_CONFIG_MAP).await.map_err(failed("read"))?;
    let wanted = ConfigMap {
        metadata: metadata(namespace, CA_CONFIG_MAP),
        data: Some(BTreeMap::from([(CA_KEY.to_owned(), ca_pem.to_owned())])),
        ..ConfigMap::default()
    };
    match found {
        Some(found) if found.data == wanted.data => Ok(()),
        // The root was made anew.
        Some(_) => {
            let patch = serde_json::json!({ "data": wanted.data });
            let parameters =
                PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
            let result = maps.patch(CA_CONFIG_MAP, &parameters, &Patch::Merge(patch)).await;
            result.map(drop).map_err(failed("write"))
        }
        None => match maps.create(&parameters(), &wanted).await {
            Ok(_) => Ok(()),
            // Another replica was faster, and has the same root.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            Err(error) => Err(failed("create")(error)),
        },
    }
}

fn metadata(namespace: &str, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(namespace.to_owned()),
        labels: Some(BTreeMap::from([(MANAGED_BY.to_owned(), "gridcast".to_owned())])),
        ..ObjectMeta::default()
    }
}

fn parameters() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() }
}

fn failed(
    what: &'static str,
    kind: &'static str,
    namespace: &str,
    name: &'static str,
    source: kube::Error,
) -> AuthorityError {
    AuthorityError::Object { what, kind, namespace: namespace.to_owned(), name, source: Box::new(source) }
}
