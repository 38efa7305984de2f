//! What does a topology file say, and on which line is what is wrong with it?
//!
//! YAML or JSON, read in one pass: a host or a link above the limits ends the reading there. Aliases are few and nothing nests,
//! so that no file is larger in memory than on disk by much.

use std::{cell::Cell, fmt, fs::File, io::Read as _, marker::PhantomData, path::Path};

use gridcast_core::broadcast::topology::{
    Host, LimitedHost, Link, MAX_PLANNED_LINKS, MAX_PLANNED_VERTICES, Topology, TopologyError,
};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};
use serde_saphyr::Spanned;

/// Most bytes of a file.
const MOST_BYTES: u64 = 16 << 20;
/// Where the format is described.
const FORMAT: &str = "docs/topology.md shows the format";

/// A topology, and where its parts are in the file.
#[derive(Debug, Default)]
pub(crate) struct Declared {
    pub(crate) topology: Topology,
    hosts: Vec<u64>,
    switches: Vec<u64>,
    links: Vec<u64>,
}

/// Reads a file; the error says the line.
pub(crate) fn read(file: &Path) -> Result<Declared, String> {
    parse(&text(file)?)
}

/// Reads a file to plan on; the error begins with the file and the line.
pub(crate) fn to_plan_on(file: &Path) -> Result<Topology, String> {
    let place = file.display();
    let declared = read(file).map_err(|why| match why.strip_prefix("line ") {
        Some(behind) => format!("{place}:{behind}"),
        None => format!("{place}: {why}"),
    })?;
    match declared.topology.validate_for_planning() {
        Ok(()) => Ok(declared.topology),
        Err(error) => Err(match declared.line(&error) {
            Some(line) => format!("{place}:{line}: {error}"),
            None => format!("{place}: {error}"),
        }),
    }
}

impl Declared {
    /// The line of what an error is about.
    pub(crate) fn line(&self, error: &TopologyError) -> Option<u64> {
        // Each names its field first: `links[3].b: …`.
        let text = error.to_string();
        let (list, behind) = text.split_once('[')?;
        let index: usize = behind.split_once(']')?.0.parse().ok()?;
        let lines = match list {
            "hosts" => &self.hosts,
            "switches" => &self.switches,
            "links" => &self.links,
            _ => return None,
        };
        lines.get(index).copied()
    }
}

fn text(file: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|f| f.take(MOST_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|e| format!("cannot be read: {e}; give the path of a file"))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(format!("has more than {MOST_BYTES} bytes; give a smaller file"));
    }
    String::from_utf8(bytes).map_err(|e| {
        let line = e.as_bytes()[..e.utf8_error().valid_up_to()].split(|b| *b == b'\n').count();
        format!("line {line}: no UTF-8 text; give a text file")
    })
}

/// Reads YAML or JSON.
pub(crate) fn parse(text: &str) -> Result<Declared, String> {
    if text.trim().is_empty() {
        return Err(format!("line 1: the file is empty; {FORMAT}"));
    }
    // Y is a switch, not a truth value. A link with all its fields is 22 nodes.
    let options = serde_saphyr::options! {
        strict_booleans: true,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_events: 4_000_000,
            max_nodes: 3_000_000,
            max_aliases: 100,
            max_anchors: 100,
            max_documents: 1,
            max_depth: 8,
        },
    };
    let at = Cell::new(None);
    let read = serde_saphyr::with_deserializer_from_str_with_options(text, options, |deserializer| {
        Whole { at: &at }.deserialize(deserializer)
    });
    read.map_err(|error| {
        let line = error.location().map(|location| location.line()).filter(|&line| line > 0);
        let line = line.map_or_else(String::new, |line| format!("line {line}: "));
        let (field, value) = named(text, &error).unwrap_or_default();
        let part = at.get().map_or_else(String::new, |(list, index)| format!("{list}[{index}]{field}: "));
        format!("{line}{part}{}{value}; {FORMAT}", reason(&error))
    })
}

/// Of a value that is none of its kind: `.field` and `: value`, as they stand in the text.
fn named(text: &str, error: &serde_saphyr::Error) -> Option<(String, String)> {
    let location = error.location().filter(|_| reason(error).starts_with("invalid "))?;
    let line = text.lines().nth(usize::try_from(location.line()).ok()?.checked_sub(1)?)?;
    let column = usize::try_from(location.column()).ok()?.checked_sub(1)?;
    let (at, _) = line.char_indices().nth(column)?;
    let (before, value) = line.split_at(at);
    let value: String = value.split([',', '}', ']', '#']).next()?.trim().chars().take(40).collect();
    let key = before
        .trim_end()
        .strip_suffix(':')?
        .rsplit([' ', ',', '{', '"', '\''])
        .find(|key| !key.is_empty())?;
    Some((format!(".{key}"), format!(": {value:?}")))
}

/// What is wrong, without the place, which is said before.
fn reason(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let end = text.rfind(" at line ").or_else(|| text.rfind(" (at line ")).unwrap_or(text.len());
    let text = text[..end].lines().next().unwrap_or_default();
    // The reader's own words for what a file must not have.
    let refused = [
        ("Documents {", "a second document; give one"),
        ("Aliases {", "too many aliases; write what they stand for"),
        ("Anchors {", "too many anchors; leave them out"),
        ("Events {", "too many entries; split the network"),
        ("Nodes {", "too many entries; split the network"),
        ("Depth {", "nested too deeply"),
        ("recursion limit", "nested too deeply"),
    ];
    if let Some((_, words)) = refused.iter().find(|(word, _)| text.contains(word)) {
        return (*words).to_owned();
    }
    match text.split_once(", set DuplicateKeyPolicy") {
        Some((before, _)) => before.to_owned(),
        None => text.to_owned(),
    }
}

/// Which entry of which list is being read.
type At = Cell<Option<(&'static str, usize)>>;

/// The whole file.
struct Whole<'a> {
    at: &'a At,
}

impl<'de> DeserializeSeed<'de> for Whole<'_> {
    type Value = Declared;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Declared, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Whole<'_> {
    type Value = Declared;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a mapping with `hosts`, `switches` and `links`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Declared, A::Error> {
        let (mut hosts, mut switches, mut links) = (None, None, None);
        let vertices =
            |field| List::<Named> { field, most: MAX_PLANNED_VERTICES, at: self.at, of: PhantomData };
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "hosts" if hosts.is_none() => hosts = Some(map.next_value_seed(vertices("hosts"))?),
                "switches" if switches.is_none() => {
                    let list = List::<String> {
                        field: "switches",
                        most: MAX_PLANNED_VERTICES,
                        at: self.at,
                        of: PhantomData,
                    };
                    switches = Some(map.next_value_seed(list)?);
                }
                "links" if links.is_none() => {
                    let list = List::<Link> {
                        field: "links",
                        most: MAX_PLANNED_LINKS,
                        at: self.at,
                        of: PhantomData,
                    };
                    links = Some(map.next_value_seed(list)?);
                }
                "hosts" | "switches" | "links" => {
                    return Err(A::Error::custom(format!("`{key}` is there twice")));
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    return Err(A::Error::unknown_field(&key, &["hosts", "switches", "links"]));
                }
            }
        }
        let (host_lines, hosts) = hosts.ok_or_else(|| A::Error::missing_field("hosts"))?;
        let (switch_lines, switches) = switches.unwrap_or_default();
        let (link_lines, links) = links.unwrap_or_default();
        let hosts = hosts.into_iter().map(|Named(host)| host).collect();
        Ok(Declared {
            topology: Topology { hosts, switches, links },
            hosts: host_lines,
            switches: switch_lines,
            links: link_lines,
        })
    }
}

/// A list of at most so many entries, with their lines.
struct List<'a, T> {
    field: &'static str,
    most: usize,
    at: &'a At,
    of: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for List<'_, T> {
    type Value = (Vec<u64>, Vec<T>);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for List<'_, T> {
    type Value = (Vec<u64>, Vec<T>);

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a list of {}", self.field)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Self::Value::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let (mut lines, mut values) = (Vec::new(), Vec::new());
        loop {
            self.at.set(Some((self.field, values.len())));
            if values.len() > self.most {
                self.at.set(None);
                let Self { field, most, .. } = self;
                return Err(A::Error::custom(format!("{field}: more than {most}; split the network")));
            }
            let Some(Spanned { value, referenced, .. }) = list.next_element::<Spanned<T>>()? else { break };
            lines.push(referenced.line());
            values.push(value);
        }
        self.at.set(None);
        Ok((lines, values))
    }
}

/// A host: a name, or a mapping with budgets.
struct Named(Host);

impl<'de> Deserialize<'de> for Named {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Named;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a name or a mapping with `name`")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Named, E> {
                Ok(Named(Host::Name(name.to_owned())))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Named, A::Error> {
                LimitedHost::deserialize(MapAccessDeserializer::new(map))
                    .map(|host| Named(Host::Limited(host)))
            }
        }

        deserializer.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_may_be_called_y() {
        let links = "links: [{a: a, b: X, mbps: 1}, {a: X, b: Y, mbps: 1}, {a: Y, b: n, mbps: 1}]";
        let declared = parse(&format!("hosts: [a, n]\nswitches: [X, Y]\n{links}")).unwrap();
        assert_eq!(declared.topology.switches, ["X", "Y"]);
    }

    #[test]
    fn an_error_names_the_line_and_the_host_or_link() {
        for (text, part) in [
            ("hosts: [a, {name: b, sendmbps: 4}]", "line 1: hosts[1]: unknown field `sendmbps`"),
            ("hosts:\n- a\n- 5", "line 3: hosts[1]: "),
            ("hosts: [a, {sendMbps: 4}]", "hosts[1]: missing field `name`"),
            (
                "hosts: [a, b]\nlinks:\n- {a: a, b: b, mbps: fast}",
                "line 3: links[0].mbps: invalid floating point: \"fast\"",
            ),
            (
                "{\"hosts\": [\"a\", \"b\"], \"links\": [{\"mbps\": [1], \"a\": \"a\", \"b\": \"b\"}]}",
                "line 1: links[0]",
            ),
            ("hosts: [a, b]\nlinks: [{a: a, b: b}]", "line 2: links[0]: missing field `mbps`"),
            ("hosts: [a]\nlink: []", "unknown field `link`"),
            ("hosts: [a]\nhosts: [b]", "hosts"),
            ("hosts: {a: b}", "a list of hosts"),
            ("switches: [a]", "missing field `hosts`"),
            ("hosts: [", "line "),
            ("hi", "a mapping with `hosts`"),
            ("", "line 1: the file is empty"),
            (" \n", "line 1: the file is empty"),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains(part), "{text:?}: {message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }

    #[test]
    fn what_makes_no_sense_has_its_line() {
        let declared =
            parse("hosts:\n- a\n- b\nlinks:\n- {a: a, b: b, mbps: 1}\n- {a: a, b: q, mbps: 1}").unwrap();
        let error = declared.topology.validate_for_planning().unwrap_err();
        assert_eq!(declared.line(&error), Some(6));
    }

    #[test]
    fn yaml_and_json_are_read_alike() {
        let yaml =
            "hosts: [a, {name: b, sendMbps: 900}]\nlinks: [{a: a, b: b, mbps: 1e3, queueBytes: 100000}]";
        let json = r#"{"hosts":["a",{"name":"b","sendMbps":900}],"links":[{"a":"a","b":"b","mbps":1000,"queueBytes":100000}]}"#;
        assert_eq!(parse(yaml).unwrap().topology, parse(json).unwrap().topology);
    }

    #[test]
    fn too_much_is_refused_before_the_rest_is_read() {
        let many = "a,".repeat(30_000);
        assert!(parse(&format!("hosts: [{many}]\nlinks: [")).unwrap_err().contains("more than 20000"));
        let bomb =
            "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nhosts: [*b,*b,*b,*b,*b,*b]";
        assert!(parse(bomb).is_err());
    }
}
