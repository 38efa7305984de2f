//! How do the members' names resolve?

use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};

use super::{Blueprint, member_labels};

impl Blueprint<'_> {
    /// The headless Service: `<member>.<cluster>.<namespace>.svc` for others in the cluster. Members themselves find each
    /// other by their hosts file, so that neither the cluster's domain nor the state of its DNS matters to them.
    ///
    /// Addresses are published before pods are ready: whoever waits for readiness by name would wait for ever.
    pub fn service(&self) -> Service {
        Service {
            metadata: self.metadata(self.name().into()),
            spec: Some(ServiceSpec {
                cluster_ip: Some("None".into()),
                publish_not_ready_addresses: Some(true),
                selector: Some(member_labels(self.name())),
                ports: Some(vec![ServicePort {
                    name: Some("starter".into()),
                    port: 7412,
                    target_port: Some(IntOrString::Int(7412)),
                    protocol: Some("TCP".into()),
                    ..ServicePort::default()
                }]),
                ..ServiceSpec::default()
            }),
            status: None,
        }
    }
}
