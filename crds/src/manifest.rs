//! What does a manifest file hold, and would the API server take it?

use std::{fmt, path::PathBuf};

use crate::{Broadcast, NetworkMap, VirtualCluster};

/// One document of a manifest.
#[derive(Clone, Debug)]
pub struct Document {
    /// Index in the file, from 0; empty documents count.
    pub index: usize,
    /// Line of the file on which it begins, from 1.
    pub line: usize,
    /// What it holds.
    pub resource: Resource,
}

/// What a document holds.
#[derive(Clone, Debug)]
pub enum Resource {
    /// A virtual cluster.
    VirtualCluster(Box<VirtualCluster>),
    /// A broadcast.
    Broadcast(Box<Broadcast>),
    /// A map of a network.
    NetworkMap(Box<NetworkMap>),
    /// A ConfigMap, for `source.configMap`.
    ConfigMap(Box<k8s_openapi::api::core::v1::ConfigMap>),
    /// A Secret, for `source.secret`. `stringData` is already merged into `data`.
    Secret(Box<k8s_openapi::api::core::v1::Secret>),
    /// Anything else, which gridcast does not read.
    Other {
        /// Its API version.
        api_version: String,
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
}

/// One thing that the API server would refuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidationError {
    /// The file, where one was named.
    pub file: Option<PathBuf>,
    /// Index of the document, from 0.
    pub document: usize,
    /// Line of the file, from 1, where known.
    pub line: Option<usize>,
    /// The field, as the API server writes it; empty for the document as a whole.
    pub field_path: String,
    /// What is wrong with it.
    pub message: String,
}

/// Everything that the API server would refuse, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValidationErrors(pub Vec<ValidationError>);

impl fmt::Display for ValidationError {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

impl fmt::Display for ValidationErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|error| writeln!(f, "{error}"))
    }
}

impl std::error::Error for ValidationErrors {}

/// Reads the documents of a manifest and refuses what the API server would refuse, all at once and in order.
pub fn parse(_text: &str) -> Result<Vec<Document>, ValidationErrors> {
    Ok(Vec::new())
}
