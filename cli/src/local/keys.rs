//! Keys of one run: a certificate authority that lives in memory only, one certificate per node, one for the controller.
//!
//! A node's certificate carries the node's name, so that whoever dials an address knows which node answered. The
//! authority's private key is dropped when the run's certificates are written: nobody can join later.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use crate::failure::{Failure, OrFailed as _};

/// The name in the controller's certificate.
pub(crate) const CONTROLLER: &str = "controller";

/// Writes `ca.pem`, `cert.pem` and `key.pem` into `DIR/NAME/` for each name, readable by root only.
pub(crate) fn write(directory: &Path, names: &[&str]) -> Result<(), Failure> {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    authority.distinguished_name.push(DnType::CommonName, "gridcast run");
    let key = KeyPair::generate().or_failed("KeysFailed", "make the run's key")?;
    let authority =
        CertifiedIssuer::self_signed(authority, key).or_failed("KeysFailed", "sign the run's authority")?;
    for name in names {
        let mut params =
            CertificateParams::new([(*name).to_owned()]).or_failed("KeysFailed", format!("name {name}"))?;
        params.distinguished_name.push(DnType::CommonName, *name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().or_failed("KeysFailed", format!("make the key of {name}"))?;
        let certificate = params
            .signed_by(&key, &authority)
            .or_failed("KeysFailed", format!("sign the certificate of {name}"))?;
        let place = directory.join(name);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&place)
            .or_failed("StateUnwritable", format!("make {}", place.display()))?;
        for (file, text) in
            [("ca.pem", authority.pem()), ("cert.pem", certificate.pem()), ("key.pem", key.serialize_pem())]
        {
            let path = place.join(file);
            fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)
                .and_then(|mut f| f.write_all(text.as_bytes()))
                .or_failed("StateUnwritable", format!("write {}", path.display()))?;
        }
    }
    Ok(())
}
