//! What does a manifest file hold, and would the API server take it?
//!
//! [`parse`] checks each document by the schema and the rules of [`crate::crds`] before it becomes a typed object, so
//! that what the API server would refuse is refused here, at the same field path. It does not look beyond the file: a
//! source that does not exist is the business of whoever uses it.

mod objects;
mod yaml;

use std::{
    fmt,
    io::Read as _,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use k8s_openapi::{
    api::core::v1::{ConfigMap, Secret},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::core::cel::{CompiledSchema, compile_schema};
use serde_json::Value;

use crate::{
    Broadcast, GROUP, NetworkMap, VERSION, VirtualCluster, crds, definitions, rules,
    schema::{self, Problem},
};

/// Most bytes of a manifest: several ConfigMaps and Secrets of 1 MiB each.
const MOST_BYTES: u64 = 16 * 1024 * 1024;

/// One document of a manifest.
#[derive(Clone, Debug)]
pub struct Document {
    /// Index in the file, from 0, not counting empty documents.
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
    ConfigMap(Box<ConfigMap>),
    /// A Secret, for `source.secret`; `stringData` is merged into `data`.
    Secret(Box<Secret>),
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
    /// Index of the document, from 0, not counting empty documents.
    pub document: usize,
    /// Line of the file, from 1, where known.
    pub line: Option<usize>,
    /// The field, as the API server writes it; empty for the document as a whole.
    pub field_path: String,
    /// What is wrong with it.
    pub message: String,
}

/// Everything that the API server would refuse, in the order of the file. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidationErrors(pub Vec<ValidationError>);

impl fmt::Display for ValidationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, "{}:{line}: ", file.display())?,
            (Some(file), None) => write!(f, "{}: ", file.display())?,
            (None, Some(line)) => write!(f, "line {line}: ")?,
            (None, None) => {}
        }
        if !self.field_path.is_empty() {
            write!(f, "{}: ", self.field_path)?;
        }
        f.write_str(&self.message)
    }
}

impl fmt::Display for ValidationErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for ValidationErrors {}

impl ValidationErrors {
    /// The same errors, of a file.
    pub fn in_file(mut self, file: &Path) -> Self {
        for error in &mut self.0 {
            error.file = Some(file.to_owned());
        }
        self
    }

    fn one(line: Option<usize>, message: impl Into<String>) -> Self {
        Self(vec![ValidationError {
            file: None,
            document: 0,
            line,
            field_path: String::new(),
            message: message.into(),
        }])
    }
}

/// Reads a file and its documents. A file that cannot be read, or holds nothing, is an error of the file.
pub fn read(file: &Path) -> Result<Vec<Document>, ValidationErrors> {
    let refuse = |line, message: String| ValidationErrors::one(line, message).in_file(file);
    let mut bytes = Vec::new();
    // Read, not asked for its size: a pipe or a device has none.
    std::fs::File::open(file)
        .and_then(|open| open.take(MOST_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| refuse(None, format!("cannot be read: {error}; give the path of a manifest")))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(refuse(
            None,
            format!("has more than {MOST_BYTES} bytes; a manifest is YAML, large data is a source"),
        ));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.split(|byte| *byte == b'\n').count();
        refuse(Some(line), "is no UTF-8 text; a manifest is YAML in UTF-8".into())
    })?;
    let documents = parse(&text).map_err(|errors| errors.in_file(file))?;
    if documents.is_empty() {
        return Err(refuse(None, "holds no object; a manifest begins with `apiVersion` and `kind`".into()));
    }
    Ok(documents)
}

/// Reads the documents of a manifest and refuses what the API server would refuse, all at once and in order.
pub fn parse(text: &str) -> Result<Vec<Document>, ValidationErrors> {
    let parsed =
        yaml::read(text).map_err(|malformed| ValidationErrors::one(malformed.line, malformed.message))?;
    let definitions = &*DEFINITIONS;
    let (mut documents, mut errors) = (Vec::new(), Vec::new());
    for (index, document) in parsed.iter().enumerate() {
        match definitions.resource(&document.value) {
            Ok(resource) => documents.push(Document { index, line: document.line, resource }),
            Err(problems) => {
                let from = errors.len();
                for Problem { path, message } in problems {
                    let line = Some(document.line_of(&path));
                    let error =
                        ValidationError { file: None, document: index, line, field_path: path, message };
                    if !errors[from..].contains(&error) {
                        errors.push(error);
                    }
                }
                errors[from..].sort_by_key(|error| error.line);
            }
        }
    }
    if errors.is_empty() { Ok(documents) } else { Err(ValidationErrors(errors)) }
}

/// Made once: each takes longer than a manifest.
static DEFINITIONS: LazyLock<Definitions> = LazyLock::new(Definitions::new);

/// What our kinds are checked by.
struct Definitions {
    kinds: Vec<Definition>,
}

struct Definition {
    kind: String,
    schema: Value,
    rules: CompiledSchema,
}

impl Definitions {
    fn new() -> Self {
        let metadata = objects::core_schema::<ObjectMeta>();
        let kinds = crds()
            .iter()
            .map(|crd| {
                let mut schema = definitions::open_api_schema(crd);
                // The API server checks these of every kind, whatever its schema says.
                let string = serde_json::json!({ "type": "string" });
                schema["properties"]["apiVersion"] = string.clone();
                schema["properties"]["kind"] = string;
                schema["properties"]["metadata"] = metadata.clone();
                Definition { kind: crd.spec.names.kind.clone(), rules: compile_schema(&schema), schema }
            })
            .collect();
        Self { kinds }
    }

    fn resource(&self, value: &Value) -> Result<Resource, Vec<Problem>> {
        let refuse = |path: &str, message: String| Err(vec![Problem { path: path.to_owned(), message }]);
        if !value.is_object() {
            return refuse("", "must be a mapping with `apiVersion`, `kind` and `metadata`".into());
        }
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
        let (Some(api_version), Some(kind)) = (text("/apiVersion"), text("/kind")) else {
            let missing = if text("/apiVersion").is_none() { "apiVersion" } else { "kind" };
            return refuse(missing, "is required and must be a string".into());
        };
        if text("/metadata/name").is_none_or(str::is_empty) {
            return refuse("metadata.name", "is required and must be a string".into());
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        if group == GROUP {
            return match self.kinds.iter().find(|known| known.kind == kind) {
                Some(_) if version != VERSION => {
                    refuse("apiVersion", format!("must be {GROUP}/{VERSION}, but is {api_version}"))
                }
                Some(definition) => ours(definition, value.clone()),
                None => {
                    let known: Vec<&str> = self.kinds.iter().map(|known| known.kind.as_str()).collect();
                    refuse("kind", format!("must be one of {}, but is {kind}", known.join(", ")))
                }
            };
        }
        match (api_version, kind) {
            ("v1", "ConfigMap") => {
                objects::config_map(value.clone()).map(|map| Resource::ConfigMap(Box::new(map)))
            }
            ("v1", "Secret") => {
                objects::secret(value.clone()).map(|secret| Resource::Secret(Box::new(secret)))
            }
            _ => Ok(Resource::Other {
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
                name: text("/metadata/name").unwrap_or_default().to_owned(),
            }),
        }
    }
}

fn ours(definition: &Definition, mut value: Value) -> Result<Resource, Vec<Problem>> {
    let Definition { kind, schema, rules } = definition;
    schema::prune_nulls(schema, &mut value);
    let mut problems = schema::check(schema, &value);
    problems.extend(rules::check(rules, kind, &value, None, problems.is_empty()));
    if !problems.is_empty() {
        return Err(problems);
    }
    let resource = match kind.as_str() {
        "VirtualCluster" => serde_json::from_value(value).map(Resource::VirtualCluster),
        "Broadcast" => serde_json::from_value(value).map(Resource::Broadcast),
        _ => serde_json::from_value(value).map(Resource::NetworkMap),
    };
    resource.map_err(|error| vec![Problem { path: String::new(), message: error.to_string() }])
}
