//! Makes the pods of a cluster, as long as it takes.

use std::{collections::HashSet, sync::Arc, time::Duration};

use gridcast_control::StepFailure;
use gridcast_crds::VirtualCluster;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use super::{
    members::Made,
    objects::{Blueprint, Place, places},
    observed::{Creation, Trouble},
};
use crate::{
    apply,
    context::Context,
    failure::{Error, chain},
    operations::Reporter,
};

/// Least and longest wait before the API server is asked again for what it refused.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));

/// Makes the pods of these names. Ends when all exist; fails only by what the spec has to change.
pub(super) async fn create(
    context: Arc<Context>,
    cluster: Arc<VirtualCluster>,
    names: Vec<String>,
    reporter: Reporter<Creation>,
) -> Result<Creation, StepFailure> {
    let names: HashSet<String> = names.into_iter().collect();
    let image = super::apply::image(&context);
    let blueprint = super::apply::blueprint(&context, &cluster, &image);
    let mut wait = RETRY.0;
    loop {
        let missing = missing(&context, &blueprint, &names)?;
        if missing.is_empty() {
            return Ok(Creation::default());
        }
        let pods = Asked { blueprint, places: missing.iter() };
        let refused = match apply::create_pods(&context, pods).await {
            Ok(()) => taken(&context, &blueprint, &missing),
            Err(error) => Some(refusal(&error)?),
        };
        let Some(refused) = refused else { return Ok(Creation::default()) };
        reporter.report(Creation { refused: Some(refused) });
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(RETRY.1);
    }
}

/// Pods that are made when their turn comes: a thousand that wait for theirs would be most of what the operator holds.
struct Asked<'a> {
    blueprint: Blueprint<'a>,
    places: std::slice::Iter<'a, Place<'a>>,
}

impl Iterator for Asked<'_> {
    type Item = Pod;

    fn next(&mut self) -> Option<Pod> {
        self.places.find_map(|place| self.blueprint.pod(place).ok())
    }
}

/// The places of these names whose pod is not there yet.
fn missing<'a>(
    context: &Context,
    blueprint: &Blueprint<'a>,
    names: &HashSet<String>,
) -> Result<Vec<Place<'a>>, StepFailure> {
    let mut missing = Vec::new();
    for place in places(blueprint.cluster).filter(|place| names.contains(&place.name)) {
        let pod = blueprint.pod(&place);
        let pod = pod.map_err(|error| StepFailure::new(reason(&error), error.to_string()))?;
        if !exists(context, &pod) {
            missing.push(place);
        }
    }
    Ok(missing)
}

fn reason(error: &super::objects::template::TemplateError) -> &'static str {
    use super::objects::template::TemplateError;
    match error {
        TemplateError::Invalid { .. } => INVALID,
        TemplateError::Unsupported { .. } => "Unsupported",
    }
}

/// The reason of a template that the API server does not take.
const INVALID: &str = "InvalidPodTemplate";

/// What the API server says where the pod itself is not at fault: no permission, no service account yet, a namespace that
/// goes.
const PASSING: [&str; 3] = ["cannot create resource", "service account", "being terminated"];

/// Whether the very pod that is asked for is known.
fn exists(context: &Context, asked: &Pod) -> bool {
    let serves = |found: &Pod| Made::of(found).zip(Made::of(asked)).is_some_and(|(a, b)| a.serves(&b));
    let owner = |pod: &Pod| pod.owner_references().first().map(|owner| owner.uid.clone());
    let found = context.stores.pods.get(&asked.namespace().unwrap_or_default(), &asked.name_any());
    found.is_some_and(|found| serves(&found) && owner(&found) == owner(asked))
}

/// A name that the API server says exists, though no pod of ours has it: somebody else's pod, or one of ours that goes.
fn taken(context: &Context, blueprint: &Blueprint<'_>, asked: &[Place<'_>]) -> Option<Trouble> {
    let mut pods = asked.iter().filter_map(|place| blueprint.pod(place).ok());
    let name = pods.find(|pod| !exists(context, pod))?.name_any();
    Some(Trouble::new(
        "NameTaken",
        format!(
            "{name}: a pod of this name exists that is not the cluster's, or goes only now; delete it, or wait"
        ),
    ))
}

/// What the API server said, or the failure that only another spec mends.
fn refusal(error: &Error) -> Result<Trouble, StepFailure> {
    let told = error.refusal().map_or_else(|| chain(error), str::to_owned);
    match error.code() {
        Some(403) if told.contains("exceeded quota") => Ok(Trouble::new("QuotaExceeded", told)),
        Some(403) if told.contains("violates PodSecurity") => Ok(Trouble::new("PodSecurityViolation", told)),
        Some(403) if PASSING.iter().any(|mark| told.contains(mark)) => Ok(Trouble::new("PodForbidden", told)),
        // Not a pod; or an admission plugin does not like it: a priority class that is not there, a limit that is exceeded.
        Some(400 | 403 | 422) => Err(StepFailure::new(INVALID, told)),
        _ => Ok(Trouble::new("PodRefused", told)),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn refused(code: u16, message: &str) -> String {
        let status = Status { code, message: message.to_owned(), ..Status::failure("no", "No") };
        let source = Box::new(kube::Error::Api(Box::new(status)));
        let error = Error::Write { verb: "create", what: "Pod".into(), name: "ring-node-0".into(), source };
        match refusal(&error) {
            Ok(trouble) => format!("wait: {}", trouble.reason),
            Err(failure) => format!("stalled: {failure}"),
        }
    }

    #[test]
    fn what_waiting_cannot_mend_ends_it() {
        assert_eq!(
            refused(422, "Pod \"ring-node-0\" is invalid: spec.containers[0].image: Required value"),
            "stalled: InvalidPodTemplate: Pod \"ring-node-0\" is invalid: spec.containers[0].image: Required value"
        );
        assert_eq!(
            refused(403, "pods \"x\" is forbidden: exceeded quota: q, requested: pods=1"),
            "wait: QuotaExceeded"
        );
        assert_eq!(refused(403, "violates PodSecurity \"restricted:latest\""), "wait: PodSecurityViolation");
        assert!(
            refused(403, "pods \"x\" is forbidden: no PriorityClass with name y was found")
                .starts_with("stalled: Invalid")
        );
        assert_eq!(
            refused(403, "error looking up service account default/x: not found"),
            "wait: PodForbidden"
        );
        assert_eq!(refused(500, "webhook failed"), "wait: PodRefused");
    }
}
