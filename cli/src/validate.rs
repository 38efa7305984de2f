//! `gridcast validate`: would the API server take these files?

use std::path::PathBuf;

use gridcast_crds::{Resource, ValidationErrors, manifest};

/// Checks every file and says what each holds; the error has everything that is wrong in any of them, in order.
pub(crate) fn command(files: &[PathBuf]) -> Result<(), ValidationErrors> {
    let mut errors = Vec::new();
    for file in files {
        match manifest::read(file) {
            Ok(documents) => {
                for document in &documents {
                    println!("{}:{}: {}", file.display(), document.line, summary(&document.resource));
                }
            }
            Err(ValidationErrors(of_file)) => errors.extend(of_file),
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(ValidationErrors(errors)) }
}

/// What a document holds, in the words of `kubectl`.
fn summary(resource: &Resource) -> String {
    let name = |name: &Option<String>| name.clone().unwrap_or_default();
    match resource {
        Resource::VirtualCluster(cluster) => format!("virtualcluster/{} valid", name(&cluster.metadata.name)),
        Resource::Broadcast(broadcast) => format!("broadcast/{} valid", name(&broadcast.metadata.name)),
        Resource::NetworkMap(map) => format!("networkmap/{} valid", name(&map.metadata.name)),
        Resource::ConfigMap(map) => format!("configmap/{} valid", name(&map.metadata.name)),
        Resource::Secret(secret) => format!("secret/{} valid", name(&secret.metadata.name)),
        Resource::Other { kind, name, .. } => {
            format!("{}/{name} not checked: no kind of gridcast", kind.to_lowercase())
        }
    }
}
