//! Who calls, and may they?
//!
//! A certificate says who shows it: the role in its subject's organization, the names in its subject alternative names.
//! Where an agent's own certificate has no role (a local run) everybody of its authority is trusted: they are all agents
//! of one run and its controller. With roles:
//!
//! | caller | a node's agent | the agent of a source pod | the agent with a cluster's keys |
//! |---|---|---|---|
//! | controller | everything | everything | everything |
//! | agent | `Expect`; `Follow` and `Push` in its own name | nothing | – |
//! | source | `Follow` and `Push` of its own dataset | nothing | – |
//! | member | – | – | `Fetch` |
//!
//! A dash stands for an authority of its own: such a caller does not get through the handshake.

use std::fmt;

use rustls::pki_types::CertificateDer;
use tonic::{Request, Status};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use crate::tls::Identity;

/// What a certificate's holder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The operator.
    Controller,
    /// The agent of a Kubernetes node.
    Agent,
    /// The pod that reads one broadcast's source.
    Source,
    /// A pod of one cluster.
    Member,
}

impl Role {
    /// As it stands in a certificate's organization.
    pub(crate) fn organization(self) -> &'static str {
        match self {
            Self::Controller => "gridcast:controller",
            Self::Agent => "gridcast:agent",
            Self::Source => "gridcast:source",
            Self::Member => "gridcast:member",
        }
    }

    fn of(organization: &str) -> Option<Self> {
        [Self::Controller, Self::Agent, Self::Source, Self::Member]
            .into_iter()
            .find(|role| role.organization() == organization)
    }
}

/// What a call is about, as far as permission depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// All of the service `Agent`.
    Agent,
    /// All of the service `Broadcasts`.
    Broadcasts,
    /// All of the service `Datasets`.
    Datasets,
    /// `Sink.Expect`.
    Expect,
    /// `Relay.Follow`.
    Follow,
    /// `Relay.Push`.
    Push,
    /// `Relay.Fetch`.
    Fetch,
}

/// Whether an agent whose own role is `own` takes `call` from `caller`. Names are compared elsewhere.
fn admits(own: Option<Role>, caller: Option<Role>, call: Call) -> bool {
    let Some(own) = own else { return true };
    match (caller, call) {
        (Some(Role::Controller), _) => true,
        (Some(Role::Agent), Call::Expect | Call::Follow | Call::Push)
        | (Some(Role::Source), Call::Follow | Call::Push) => own == Role::Agent,
        (Some(Role::Member), Call::Fetch) => own == Role::Member,
        _ => false,
    }
}

/// Whom a certificate belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) role: Option<Role>,
    /// DNS names, perhaps with a wildcard.
    names: Vec<String>,
}

impl Subject {
    /// None where it cannot be parsed.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        let mut organizations = parsed.subject().iter_organization().map(|name| name.as_str().ok());
        let role = match (organizations.next(), organizations.next()) {
            (Some(Some(organization)), None) => Role::of(organization),
            _ => None,
        };
        let alternative = parsed.subject_alternative_name().ok()?;
        let names = alternative.map(|extension| {
            let names = extension.value.general_names.iter().filter_map(|name| match name {
                GeneralName::DNSName(name) => Some((*name).to_owned()),
                _ => None,
            });
            names.collect()
        });
        Some(Self { role, names: names.unwrap_or_default() })
    }

    /// Whether one of the names covers `name`; a wildcard stands for one label.
    pub(crate) fn covers(&self, name: &str) -> bool {
        let rest = name.split_once('.').map(|(_, rest)| rest);
        self.names.iter().any(|known| {
            known.eq_ignore_ascii_case(name)
                || known
                    .strip_prefix("*.")
                    .zip(rest)
                    .is_some_and(|(known, rest)| known.eq_ignore_ascii_case(rest))
        })
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.names.first().map_or("a certificate without a name", String::as_str);
        match self.role {
            Some(role) => write!(f, "{name} ({})", role.organization()),
            None => write!(f, "{name} (no role)"),
        }
    }
}

/// Who made a call that was admitted.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    subject: Subject,
    identity: Identity,
}

impl Caller {
    pub(crate) fn role(&self) -> Option<Role> {
        self.subject.role
    }

    /// Whether the caller's certificate is that of the peer called `name`.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.subject.covers(&self.identity.certified_name(name))
    }

    /// Fails unless the caller's certificate is that of `name`, which `field` of the request claims to be the caller.
    pub(crate) fn must_be(&self, name: &str, field: &str) -> Result<(), Status> {
        if self.is(name) {
            return Ok(());
        }
        let text =
            format!("{field} is `{}`, but the certificate is that of {}", name.escape_debug(), self.subject);
        Err(Status::permission_denied(text))
    }
}

/// The caller of `request`, if it may.
pub(crate) fn caller<T>(identity: &Identity, request: &Request<T>, call: Call) -> Result<Caller, Status> {
    let shown = request.peer_certs();
    let certificate = shown.as_deref().and_then(|chain| chain.first());
    let subject = certificate.and_then(Subject::of);
    let subject = subject
        .ok_or_else(|| Status::unauthenticated("the caller's certificate is missing or unreadable"))?;
    // A certificate of its own that cannot be read must not open the door.
    let own = identity.subject().ok_or_else(|| Status::internal("this agent's certificate is unreadable"))?;
    if admits(own.role, subject.role, call) {
        return Ok(Caller { subject, identity: identity.clone() });
    }
    tracing::warn!(caller = %subject, ?call, "refused a call");
    Err(Status::permission_denied(format!("{subject} may not call {call:?} on {own}")))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    const ROLES: [Option<Role>; 5] =
        [Some(Role::Controller), Some(Role::Agent), Some(Role::Source), Some(Role::Member), None];
    const CALLS: [Call; 7] =
        [Call::Agent, Call::Broadcasts, Call::Datasets, Call::Expect, Call::Follow, Call::Push, Call::Fetch];

    fn subject(names: &[&str], organizations: &[&str]) -> Subject {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        for organization in organizations {
            params.distinguished_name.push(DnType::OrganizationName, *organization);
        }
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        Subject::of(certificate.der()).unwrap()
    }

    #[test]
    fn each_role_may_what_the_table_says_and_nothing_else() {
        let mut allowed = Vec::new();
        for own in [Some(Role::Agent), Some(Role::Source), Some(Role::Member)] {
            for caller in ROLES.into_iter().filter(|role| *role != Some(Role::Controller)) {
                allowed.extend(
                    CALLS
                        .into_iter()
                        .filter(|call| admits(own, caller, *call))
                        .map(|call| (own, caller, call)),
                );
            }
            assert!(CALLS.into_iter().all(|call| admits(own, Some(Role::Controller), call)));
        }
        let agent = Some(Role::Agent);
        assert_eq!(
            allowed,
            [
                (agent, Some(Role::Agent), Call::Expect),
                (agent, Some(Role::Agent), Call::Follow),
                (agent, Some(Role::Agent), Call::Push),
                (agent, Some(Role::Source), Call::Follow),
                (agent, Some(Role::Source), Call::Push),
                (Some(Role::Member), Some(Role::Member), Call::Fetch),
            ]
        );
    }

    #[test]
    fn without_roles_everybody_of_the_run_is_trusted() {
        assert!(ROLES.into_iter().all(|caller| CALLS.into_iter().all(|call| admits(None, caller, call))));
    }

    #[test]
    fn a_certificate_tells_role_and_names() {
        let agent = subject(&["node-1.example.org"], &["gridcast:agent"]);
        assert_eq!(agent.role, Some(Role::Agent));
        assert!(agent.covers("node-1.example.org") && agent.covers("NODE-1.example.org"));
        assert!(!agent.covers("node-1") && !agent.covers("node-2.example.org") && !agent.covers(""));
        assert_eq!(agent.to_string(), "node-1.example.org (gridcast:agent)");

        let member = subject(&["*.1f0c.members.gridcast.io"], &["gridcast:member"]);
        assert!(member.covers("ring-node-0.1f0c.members.gridcast.io"));
        assert!(!member.covers("a.b.1f0c.members.gridcast.io") && !member.covers("1f0c.members.gridcast.io"));
    }

    #[test]
    fn what_is_no_role_of_ours_is_none() {
        for organizations in [&[][..], &["gridcast:root"], &["Gridcast:agent"]] {
            assert_eq!(subject(&["x"], organizations).role, None, "{organizations:?}");
        }
        assert_eq!(Subject::of(&CertificateDer::from(b"nonsense".to_vec())), None);
    }
}
