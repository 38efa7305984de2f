//! What is in a certificate?
//!
//! Ed25519 keys, the role in the subject's organisation, one DNS name, which is what peers verify. An authority's
//! certificate is made of nothing but its label and key, so that the same root gives the same bytes.

use std::{collections::BTreeMap, time::Duration};

use aws_lc_rs::digest;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, PKCS_ED25519, PublicKeyData, SanType,
    SerialNumber, date_time_ymd,
};
use time::OffsetDateTime;

use super::{AuthorityError, root::Root};

/// PKCS #8 of an Ed25519 key is this and the 32 bytes of its seed (RFC 8410, section 7).
const PKCS8_ED25519: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// Clocks of nodes differ.
const CLOCK_SKEW: Duration = Duration::from_hours(1);

/// What the holder of a certificate may do, as its subject's organisation says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The operator.
    Controller,
    /// A node's agent.
    Agent,
    /// The source pod of a Broadcast.
    Source,
    /// The pods of a cluster.
    Member,
}

impl Role {
    fn organisation(self) -> &'static str {
        match self {
            Self::Controller => "gridcast:controller",
            Self::Agent => "gridcast:agent",
            Self::Source => "gridcast:source",
            Self::Member => "gridcast:member",
        }
    }
}

/// For how long a certificate is good.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetime(Duration);

impl Lifetime {
    /// For keys that end otherwise: with the process that holds them, or with the Secret of an object.
    pub(super) const LONG: Self = Self(Duration::from_hours(24 * 365 * 10));

    pub(super) fn of(valid: Duration) -> Self {
        Self(valid)
    }
}

/// A certificate and its key, PEM.
#[derive(Clone)]
pub(super) struct Leaf {
    pub(super) certificate_pem: String,
    pub(super) key_pem: String,
}

impl Leaf {
    /// The files of a directory of keys.
    pub(super) fn files(self, ca_pem: &str) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("ca.pem".to_owned(), ca_pem.to_owned()),
            ("cert.pem".to_owned(), self.certificate_pem),
            ("key.pem".to_owned(), self.key_pem),
        ])
    }
}

/// One authority.
pub(super) struct Issuer {
    ca_pem: String,
    issuer: rcgen::Issuer<'static, KeyPair>,
}

impl Issuer {
    /// The authority of `label` under `root`.
    pub(super) fn derive(root: &Root, label: &str, name: &str) -> Result<Self, AuthorityError> {
        let seed = root.derive(label)?;
        let pkcs8: Vec<u8> = PKCS8_ED25519.iter().chain(&seed).copied().collect();
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&pkcs8.into(), &PKCS_ED25519)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2120, 1, 1);
        params.serial_number = Some(serial(key.der_bytes()));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let ca_pem = params.self_signed(&key)?.pem();
        Ok(Self { ca_pem, issuer: rcgen::Issuer::new(params, key) })
    }

    pub(super) fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// A new key, and its certificate for `name`.
    pub(super) fn leaf(&self, role: Role, name: &str, lifetime: Lifetime) -> Result<Leaf, AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ED25519)?;
        let certificate_pem = params(role, name, lifetime)?.signed_by(&key, &self.issuer)?.pem();
        Ok(Leaf { certificate_pem, key_pem: key.serialize_pem() })
    }

    /// A certificate for `name` and the public key of a request. The request must be signed by its key.
    pub(super) fn sign_request(
        &self,
        role: Role,
        name: &str,
        request_pem: &str,
        lifetime: Lifetime,
    ) -> Result<String, AuthorityError> {
        let request = CertificateSigningRequestParams::from_pem(request_pem)?;
        Ok(params(role, name, lifetime)?.signed_by(&request.public_key, &self.issuer)?.pem())
    }
}

fn params(role: Role, name: &str, lifetime: Lifetime) -> Result<CertificateParams, AuthorityError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, role.organisation());
    params.subject_alt_names = vec![SanType::DnsName(name.try_into()?)];
    let now = OffsetDateTime::now_utc();
    params.not_before = now - CLOCK_SKEW;
    params.not_after = now + lifetime.0;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // Agents and starters are servers to some and clients to others.
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

/// A serial number that depends on the key alone; positive, as RFC 5280 asks.
fn serial(key: &[u8]) -> SerialNumber {
    let mut bytes = digest::digest(&digest::SHA256, key).as_ref()[..16].to_vec();
    bytes[0] &= 0x7f;
    SerialNumber::from(bytes)
}
