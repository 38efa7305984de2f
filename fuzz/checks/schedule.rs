//! Whatever others tell a host, in whatever order: it does not panic, sends only what it holds, and only to hosts of the plan.

use std::{sync::Arc, time::Duration};

use gridcast_core::broadcast::{
    plan::{Options, plan},
    schedule::{Chunks, Command, Entrance, Event, Message, Node, Settings, Shape},
    topology::{Host, Link, Topology},
};

const CHUNKS: u32 = 12;

/// The bytes that say what happens.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// A number, mostly small.
    fn number(&mut self) -> Option<usize> {
        Some(match self.next()? {
            255 => usize::MAX,
            254 => usize::MAX / 2,
            253 => 1 << 32,
            byte => usize::from(byte % 32),
        })
    }

    fn chunk(&mut self) -> Option<u32> {
        Some(match self.next()? {
            255 => u32::MAX,
            byte => u32::from(byte) % (CHUNKS + 2),
        })
    }
}

/// A star, whose trees are nested, or a ring, whose trees are not.
fn network(star: bool) -> Topology {
    let names = ["S", "A", "B", "C", "D"];
    let links = if star {
        names
            .iter()
            .zip([900.0, 500.0, 100.0, 300.0, 300.0])
            .map(|(name, mbps)| Link::new(name, "X", mbps))
            .collect()
    } else {
        (0..5).map(|host| Link::new(names[host], names[(host + 1) % 5], 100.0 + 50.0 * host as f64)).collect()
    };
    Topology {
        hosts: names.map(|name| Host::Name(name.to_owned())).to_vec(),
        switches: if star { vec!["X".to_owned()] } else { Vec::new() },
        links,
    }
}

pub(crate) fn check(data: &[u8]) {
    let mut bytes = Bytes(data);
    let Some(first) = bytes.next() else { return };
    let network = network(first & 1 == 0);
    let destinations = ["A", "B", "C", "D"].map(str::to_owned);
    let Ok(plan) = plan(&network, "S", &destinations, &Options::default()) else { panic!("there is a plan") };
    let shape = Arc::new(Shape::new(&plan));
    let me = usize::from(first >> 1) % shape.hosts().len();
    let entrance = [Entrance::Fresh, Entrance::Resumed, Entrance::Late][usize::from(first >> 4) % 3];
    let held = if shape.hosts()[me] == "S" { Chunks::all(CHUNKS) } else { Chunks::none(CHUNKS) };
    let settings = Settings {
        chunks: CHUNKS,
        chunk_bytes: 1 << 20,
        round_trip: Duration::from_millis(1),
        ahead: 0,
        relay_queue: (first & 128 != 0).then_some(4),
    };
    let mut node = Node::new(Arc::clone(&shape), me, held, settings, entrance);
    let mut now = Duration::ZERO;
    let mut event = Some(Event::Started);
    while let Some(what) = event {
        for command in node.handle(now, what) {
            if let Command::Send { to, tree, chunk } = command {
                assert!(node.held().has(chunk), "chunk {chunk} is sent and not there");
                assert!(to < shape.hosts().len() && to != me && tree < shape.trees());
            }
        }
        now += Duration::from_millis(u64::from(bytes.next().unwrap_or_default()));
        event = next(&mut bytes, me, shape.hosts().len());
    }
}

/// What comes from elsewhere is known to come from another host of the plan: each has a certificate.
fn next(bytes: &mut Bytes<'_>, me: usize, hosts: usize) -> Option<Event> {
    let kind = bytes.next()? % 12;
    let other = (me + 1 + usize::from(bytes.next()?) % (hosts - 1)) % hosts;
    Some(match kind {
        0 => Event::Woken,
        1 => Event::Gone { host: bytes.number()? },
        2 => Event::Back { host: bytes.number()? },
        3 | 4 => Event::Received {
            from: other,
            tree: bytes.number()?,
            chunk: bytes.chunk()?,
            intact: bytes.next()? < 224,
        },
        _ => Event::Told { from: other, message: message(bytes)? },
    })
}

fn message(bytes: &mut Bytes<'_>) -> Option<Message> {
    let kind = bytes.next()? % 10;
    let tree = bytes.number()?;
    Some(match kind {
        0 => Message::Attach { tree, position: bytes.number().filter(|&position| position != 31) },
        1 => Message::Attached {
            tree,
            position: bytes.number()?,
            end: bytes.number().filter(|&end| end != 31),
        },
        2 => Message::Ready { tree, upto: bytes.number()? },
        3 => Message::Entry { tree, chunk: bytes.chunk()? },
        4 => Message::Fetch { tree, chunk: bytes.chunk()? },
        5 => Message::Refuse { tree, chunk: bytes.chunk()? },
        6 => Message::Retired { tree, end: bytes.number()? },
        7 => Message::Holding { chunk: bytes.chunk()? },
        8 => Message::Lacking { chunk: bytes.chunk()? },
        _ => {
            let mut chunks = Chunks::none(bytes.chunk()?.min(1000));
            chunks.insert(bytes.chunk()?);
            chunks.insert(bytes.chunk()?);
            Message::Holds { chunks }
        }
    })
}
