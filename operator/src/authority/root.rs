//! Where do all keys come from?
//!
//! Of 32 random bytes in a Secret of the operator's own namespace, filled in by whichever replica comes first. The
//! certificate of the agents' authority is published beside it, in a ConfigMap that every agent mounts. The chart makes
//! both, empty, so that the operator may create neither and they go with the release.
//!
//! A root that is lost takes all trust with it: of the agents until they have new certificates, of running members for good.
//! So the Secret is made immutable when it is filled, which refuses to replace it by the chart's empty one; and where a
//! certificate was published without a root to match, nothing is made anew before somebody has said so.

use aws_lc_rs::{hkdf, rand};
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
};
use kube::{Api, Client, api::PostParams};

use super::{Authority, AuthorityError};
use crate::apply::FIELD_MANAGER;

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

/// Reads the root of `namespace`, or fills it in where the chart left it empty, and publishes the agents' authority. Fails
/// with [`AuthorityError::RootLost`] where there was a root before.
pub async fn load_or_create(client: Client, namespace: &str) -> Result<Authority, AuthorityError> {
    let (secrets, maps) =
        (Api::namespaced(client.clone(), namespace), Api::namespaced(client.clone(), namespace));
    let authority = Authority::new(root(&secrets, &maps, namespace).await?)?;
    publish(&maps, namespace, authority.agents_ca_pem()).await?;
    Ok(authority)
}

async fn root(secrets: &Api<Secret>, maps: &Api<ConfigMap>, namespace: &str) -> Result<Root, AuthorityError> {
    let failed = |what| move |source| failed(what, "Secret", namespace, ROOT_SECRET, source);
    loop {
        // Before the root: it is written first, so that what is seen here had one.
        let published = is_published(maps, namespace).await?;
        let mut secret = secrets.get(ROOT_SECRET).await.map_err(failed("read"))?;
        if let Some(value) = secret.data.as_ref().and_then(|data| data.get(ROOT_KEY)) {
            let root = read(&value.0, namespace)?;
            if secret.immutable != Some(true) {
                secret.immutable = Some(true);
                protect(secrets, &secret).await;
            }
            return Ok(root);
        }
        if published {
            return Err(AuthorityError::RootLost { namespace: namespace.to_owned() });
        }
        let root = Root::random()?;
        secret.data.get_or_insert_default().insert(ROOT_KEY.to_owned(), ByteString(root.0.to_vec()));
        secret.immutable = Some(true);
        match secrets.replace(ROOT_SECRET, &parameters(), &secret).await {
            Ok(_) => {
                tracing::info!(secret = ROOT_SECRET, "made the root of all keys");
                return Ok(root);
            }
            // Another replica was faster: its root is everybody's.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(failed("write")(error)),
        }
    }
}

/// Makes a root of an operator before this one immutable. The next start tries again where that fails.
async fn protect(secrets: &Api<Secret>, secret: &Secret) {
    if let Err(error) = secrets.replace(ROOT_SECRET, &parameters(), secret).await {
        let error = gridcast_core::failure::chain(&error);
        tracing::warn!(secret = ROOT_SECRET, error, "the root could not be made immutable");
    }
}

/// Whether there has been a root before.
async fn is_published(maps: &Api<ConfigMap>, namespace: &str) -> Result<bool, AuthorityError> {
    let map = maps
        .get(CA_CONFIG_MAP)
        .await
        .map_err(|source| failed("read", "ConfigMap", namespace, CA_CONFIG_MAP, source))?;
    Ok(map.data.as_ref().and_then(|data| data.get(CA_KEY)).is_some_and(|pem| !pem.is_empty()))
}

fn read(bytes: &[u8], namespace: &str) -> Result<Root, AuthorityError> {
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
    loop {
        let mut map = maps.get(CA_CONFIG_MAP).await.map_err(failed("read"))?;
        let data = map.data.get_or_insert_default();
        if data.insert(CA_KEY.to_owned(), ca_pem.to_owned()).as_deref() == Some(ca_pem) {
            return Ok(());
        }
        match maps.replace(CA_CONFIG_MAP, &parameters(), &map).await {
            Ok(_) => return Ok(()),
            // Another replica was faster, and has the same root.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(failed("write")(error)),
        }
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
