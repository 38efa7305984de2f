//! Whom do the starters of one cluster believe?
//!
//! Nobody but holders of keys of their cluster. All pods of a cluster hold one pair of keys, for every name below a domain
//! of the cluster's own: five thousand pairs would not fit into a Secret, and a pod that is compromised has the run's
//! data and program anyway.

use std::{collections::BTreeMap, net::SocketAddr};

use tonic::transport::Channel;

use super::{
    AuthorityError, CONTROLLER,
    certificate::{Issuer, Leaf, Lifetime, Role},
    client_tls, connect_lazily,
    root::Root,
};

/// The authority of one cluster and generation of its keys.
pub struct ClusterAuthority {
    issuer: Issuer,
    controller: Leaf,
    domain: String,
}

impl std::fmt::Debug for ClusterAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterAuthority").field("domain", &self.domain).finish_non_exhaustive()
    }
}

impl ClusterAuthority {
    pub(super) fn derive(root: &Root, uid: &str, generation: u32) -> Result<Self, AuthorityError> {
        let issuer = Issuer::derive(root, &format!("cluster/{uid}/{generation}"), "gridcast cluster")?;
        let domain = format!("{uid}.members.gridcast.io");
        let controller = issuer.leaf(Role::Controller, CONTROLLER, Lifetime::LONG)?;
        Ok(Self { issuer, controller, domain })
    }

    /// Certificate of the authority, PEM: always the same bytes.
    pub fn ca_pem(&self) -> &str {
        self.issuer.ca_pem()
    }

    /// A peer NAME is verified as `NAME.<domain>`.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// The files of the members' keys: `ca.pem`, `cert.pem`, `key.pem` and `domain`. Another key each time; what was
    /// given out before stays good.
    pub fn member_keys(&self) -> Result<BTreeMap<String, String>, AuthorityError> {
        let leaf = self.issuer.leaf(Role::Member, &format!("*.{}", self.domain), Lifetime::LONG)?;
        let mut files = leaf.files(self.issuer.ca_pem());
        files.insert("domain".to_owned(), self.domain.clone());
        Ok(files)
    }

    /// A lazy channel to the starter, or collector, of a member.
    pub fn channel(&self, name: &str, address: SocketAddr) -> Result<Channel, AuthorityError> {
        let name = format!("{name}.{}", self.domain);
        connect_lazily(client_tls(&self.controller, self.issuer.ca_pem(), &name), address)
    }
}
