//! Where does each dataset come from, and where do results go? Claims stand for directories of this machine.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use gridcast_control::launch::Program;
use gridcast_crds::{
    Document, Resource,
    source::{ClaimPath, HttpSource, Source},
    virtual_cluster as vc,
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use crate::failure::Failure;
use crate::local::origin::{self, Origin};

use super::{CollectPlan, DataPlan, RunPlan};

/// The directories of `--volume` by name, absolute.
pub(super) fn volumes(given: &[(String, PathBuf)]) -> Result<BTreeMap<String, PathBuf>, Failure> {
    let mut volumes = BTreeMap::new();
    for (name, directory) in given {
        let refuse = |why: &str| Failure::input(format!("--volume {name}={}: {why}", directory.display()));
        let path = if directory.exists() {
            if !directory.is_dir() {
                return Err(refuse("is not a directory; give one"));
            }
            directory
                .canonicalize()
                .map_err(|e| refuse(&format!("cannot be found: {e}; give another directory")))?
        } else if directory.is_symlink() {
            return Err(refuse("is a link that leads nowhere; mend it, or give another directory"));
        } else {
            // Made when results are to go there; its parent must be there, so that a mistyped path is noticed.
            let parent = directory.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let missing = || {
                refuse(&format!(
                    "neither it nor {} is a directory; give a directory of this machine",
                    parent.display()
                ))
            };
            let parent = parent.canonicalize().ok().filter(|p| p.is_dir()).ok_or_else(missing)?;
            parent.join(
                directory.file_name().ok_or_else(|| refuse("does not end with a name; give a directory"))?,
            )
        };
        if volumes.insert(name.clone(), path).is_some() {
            return Err(refuse("this NAME is given twice; give each once"));
        }
    }
    Ok(volumes)
}

/// What sources refer to.
pub(super) struct Context<'a> {
    pub(super) file: &'a Path,
    pub(super) documents: &'a [Document],
    pub(super) volumes: &'a BTreeMap<String, PathBuf>,
}

impl Context<'_> {
    /// Dataset number `index`. Files of this machine are looked at, all of them.
    pub(super) fn dataset(&self, index: usize, data: &vc::Data) -> Result<DataPlan, Failure> {
        let strategy = data.strategy();
        let field = format!("spec.data[{index}].source");
        let origin = self.origin(&field, &data.source)?;
        if let Origin::Path(path) = &origin {
            origin::check(&field, path)?;
        }
        Ok(DataPlan {
            name: data.name.clone(),
            mount_path: PathBuf::from(&data.mount_path),
            origin,
            strategy,
        })
    }

    fn origin(&self, field: &str, source: &Source) -> Result<Origin, Failure> {
        if let Some(node) = &source.node {
            return Ok(Origin::Path(PathBuf::from(&node.path)));
        }
        if let Some(claim) = &source.persistent_volume_claim {
            let field = format!("{field}.persistentVolumeClaim");
            return self.volume(&field, claim).map(Origin::Path);
        }
        if let Some(map) = &source.config_map {
            let found = self.find(|r| match r {
                Resource::ConfigMap(m) if m.metadata.name.as_deref() == Some(&map.name) => {
                    Some(config_map_files(m))
                }
                _ => None,
            });
            return self.keys(&format!("{field}.configMap.name"), "ConfigMap", &map.name, found, false);
        }
        if let Some(secret) = &source.secret {
            let found = self.find(|r| match r {
                Resource::Secret(s) if s.metadata.name.as_deref() == Some(&secret.secret_name) => {
                    Some(secret_files(s))
                }
                _ => None,
            });
            return self.keys(
                &format!("{field}.secret.secretName"),
                "Secret",
                &secret.secret_name,
                found,
                true,
            );
        }
        if let Some(http) = &source.http {
            return url(&format!("{field}.http"), http);
        }
        Err(Failure::input(format!(
            "{field}.{}: is not read by a local run; use `node`, `persistentVolumeClaim`, `configMap`, `secret` or `http`",
            source.kind().unwrap_or_default()
        )))
    }

    fn find<T>(&self, pick: impl Fn(&Resource) -> Option<T>) -> Vec<T> {
        self.documents.iter().filter_map(|d| pick(&d.resource)).collect()
    }

    fn keys(
        &self,
        field: &str,
        kind: &str,
        name: &str,
        mut found: Vec<BTreeMap<String, Vec<u8>>>,
        secret: bool,
    ) -> Result<Origin, Failure> {
        let refuse = |why: String| Failure::input(format!("{field}: {} {why}", self.file.display()));
        if found.len() > 1 {
            return Err(refuse(format!("has {} documents that are {kind} {name}; keep one", found.len())));
        }
        let files = found.pop().ok_or_else(|| {
            refuse(format!("has no {kind} {name}; a local run reads it from a further document of the same file, so add it"))
        })?;
        let bad = files.keys().find(|k| {
            k.is_empty() || k.contains('/') || k.contains('\0') || matches!(k.as_str(), "." | "..")
        });
        match bad {
            Some(key) => Err(refuse(format!(
                "has the key {key:?} in {kind} {name}, which cannot be a file name; rename it"
            ))),
            None => Ok(Origin::Keys { files, secret }),
        }
    }

    fn volume(&self, field: &str, claim: &ClaimPath) -> Result<PathBuf, Failure> {
        let name = &claim.claim_name;
        let directory = self.volumes.get(name).ok_or_else(|| {
            Failure::input(format!(
                "{field}.claimName: no directory stands for {name}; add --volume {name}=DIR"
            ))
        })?;
        Ok(claim.path.as_ref().map_or_else(|| directory.clone(), |path| directory.join(path)))
    }

    /// The program, which starts in `directory`.
    pub(super) fn run(&self, run: &vc::Run, directory: &Path) -> Result<RunPlan, Failure> {
        let collect = run.collect.iter().enumerate().map(|(index, collect)| {
            let claim = &collect.to.persistent_volume_claim;
            let field = format!("spec.run.collect[{index}].to.persistentVolumeClaim");
            let target = self.volume(&field, claim)?;
            // What exists on the way to the target must be directories: results are put below it.
            if let Some(file) =
                target.ancestors().find(|p| p.symlink_metadata().is_ok()).filter(|p| !p.is_dir())
            {
                return Err(Failure::input(format!(
                    "{field}.path: {} is not a directory; remove it, or collect to another path",
                    file.display()
                )));
            }
            Ok(CollectPlan {
                path: directory.join(&collect.path),
                claim: claim.claim_name.clone(),
                below: claim.path.clone().unwrap_or_default().into(),
            })
        });
        let program =
            Program::try_from(run).map_err(|unsupported| Failure::input(unsupported.to_string()))?;
        Ok(RunPlan { program, collect: collect.collect::<Result<_, Failure>>()? })
    }
}

fn config_map_files(map: &ConfigMap) -> BTreeMap<String, Vec<u8>> {
    let text = map.data.iter().flatten().map(|(k, v)| (k.clone(), v.clone().into_bytes()));
    let binary = map.binary_data.iter().flatten().map(|(k, v)| (k.clone(), v.0.clone()));
    text.chain(binary).collect()
}

fn secret_files(secret: &Secret) -> BTreeMap<String, Vec<u8>> {
    secret.data.iter().flatten().map(|(k, v)| (k.clone(), v.0.clone())).collect()
}

fn url(field: &str, http: &HttpSource) -> Result<Origin, Failure> {
    if http.secret_name.is_some() {
        return Err(Failure::input(format!(
            "{field}.secretName: a local run sends no credentials; remove it"
        )));
    }
    let url = reqwest::Url::parse(&http.url)
        .map_err(|e| Failure::input(format!("{field}.url: {e}; write it as https://HOST/PATH/FILE")))?;
    let file = url
        .path_segments()
        .and_then(|mut s| s.next_back())
        .filter(|f| !f.is_empty() && !matches!(*f, "." | ".."));
    match file {
        Some(file) => Ok(Origin::Url { file: file.to_owned(), url }),
        None => Err(Failure::input(format!(
            "{field}.url: {} does not end with the name of a file; give the URL of one file",
            origin::shown(&url)
        ))),
    }
}
