//! YAML as values that know their lines.
//!
//! Octal numbers are read as `kubectl` reads them (YAML 1.1), and a key that occurs twice is refused as strict field
//! validation does. Booleans are `true` and `false` alone (YAML 1.2): `kubectl` takes a bare `Off` for false, and one of
//! our own enums has that word, so `mode: Off` must mean what it says; `docs/api.md` tells users to quote it.

use std::{collections::HashMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;

use crate::schema::child;

/// Up to here every integer is a double of its own.
const MOST_EXACT: f64 = 9_007_199_254_740_992.0;

/// One document.
#[derive(Debug)]
pub(crate) struct Parsed {
    /// Its value.
    pub(crate) value: Value,
    /// The line of the file on which it begins, from 1.
    pub(crate) line: usize,
    lines: HashMap<String, usize>,
}

/// Why the text is no YAML.
#[derive(Debug)]
pub(crate) struct Malformed {
    pub(crate) line: Option<usize>,
    pub(crate) message: String,
}

impl Parsed {
    /// The line of the field at `path`, or of the nearest that contains it.
    pub(crate) fn line_of(&self, path: &str) -> usize {
        let mut path = path;
        loop {
            if let Some(line) = self.lines.get(path) {
                return *line;
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = &path[..end],
                None => return self.line,
            }
        }
    }
}

/// Reads all documents; those that are empty are left out.
pub(crate) fn read(text: &str) -> Result<Vec<Parsed>, Malformed> {
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        strict_booleans: true,
        with_snippet: false,
    };
    let documents: Vec<Spanned<Node>> =
        serde_saphyr::from_multiple_with_options(text, options).map_err(|error| Malformed {
            line: error.location().and_then(|location| usize::try_from(location.line()).ok()),
            message: error.to_string(),
        })?;
    Ok(documents.into_iter().map(parsed).collect())
}

fn parsed(node: Spanned<Node>) -> Parsed {
    let line = line(&node.referenced);
    let mut lines = HashMap::new();
    let value = flatten(node.value, "", &mut lines);
    Parsed { value, line, lines }
}

fn line(location: &serde_saphyr::Location) -> usize {
    usize::try_from(location.line()).unwrap_or(usize::MAX)
}

fn flatten(node: Node, path: &str, lines: &mut HashMap<String, usize>) -> Value {
    match node {
        Node::Scalar(value) => value,
        Node::List(items) => items
            .into_iter()
            .enumerate()
            .map(|(index, item)| {
                let path = format!("{path}[{index}]");
                lines.insert(path.clone(), line(&item.referenced));
                flatten(item.value, &path, lines)
            })
            .collect(),
        Node::Mapping(entries) => {
            let mut map = Map::with_capacity(entries.len());
            for (key, node) in entries {
                let path = child(path, &key.value);
                lines.insert(path.clone(), line(&key.referenced));
                let value = flatten(node, &path, lines);
                map.insert(key.value, value);
            }
            Value::Object(map)
        }
    }
}

#[derive(Debug)]
enum Node {
    Scalar(Value),
    List(Vec<Spanned<Node>>),
    Mapping(Vec<(Spanned<String>, Node)>),
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a scalar, a list or a mapping")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Node, E> {
        // `kubectl` sends JSON, where 1.0 is written 1: an integer field takes it.
        if value.fract() == 0.0 && value.abs() < MOST_EXACT {
            return Ok(Node::Scalar((value as i64).into()));
        }
        let number = Number::from_f64(value).ok_or_else(|| E::custom("numbers must be finite"))?;
        Ok(Node::Scalar(Value::Number(number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_string<E>(self, value: String) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Mapping(entries))
    }
}
