//! Whose line is this? Open MPI's `--tag-output`, rewritten for people.
//!
//! Version 4 writes `[1,2]<stdout>:text`, as it comes: parts of lines, several ranks on one line. Version 5 writes
//! `[1,2]<stdout>: text`, whole lines. Both become `HOST: text`, one whole line of one rank at a time.

/// Longest line that is kept together, per rank. A longer one is broken there: memory must not follow the program.
const LINE_BYTES: usize = 64 << 10;
/// Longest tag: `[4294967295,4294967295]<stddiag>:`.
const TAG_BYTES: usize = 40;

/// Which version wrote the tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TagStyle {
    /// Not known: a space after a tag is taken for version 5's until a tag comes without one.
    #[default]
    Unknown,
    /// Open MPI 4: the text follows at once.
    Four,
    /// Open MPI 5: a space lies between.
    Five,
}

/// Rewrites one stream (standard output or standard error) of `mpirun`. Feed it what was read, in pieces of any size.
///
/// What bears no tag, such as messages of `mpirun` itself, passes through. A program that prints such a tag itself can
/// give its words to another host; nothing but the output depends on it.
#[derive(Debug)]
pub struct TagFilter {
    hosts: Vec<String>,
    style: TagStyle,
    lines: Vec<Vec<u8>>,
    /// Whose text follows.
    rank: Option<usize>,
    /// The last thing was a tag: the next byte may be its space.
    after_tag: bool,
    /// What may be the beginning of a tag.
    pending: Vec<u8>,
}

enum Tag {
    Whole(usize, usize),
    Beginning,
    None,
}

impl TagFilter {
    /// `hosts` by rank, see [`super::Implementation::hosts_by_rank`].
    pub fn new(hosts: Vec<String>, style: TagStyle) -> Self {
        let lines = vec![Vec::new(); hosts.len()];
        Self { hosts, style, lines, rank: None, after_tag: false, pending: Vec::new() }
    }

    /// Takes what was read; returns what can be written.
    pub fn feed(&mut self, read: &[u8]) -> Vec<u8> {
        let mut input = std::mem::take(&mut self.pending);
        input.extend_from_slice(read);
        let mut output = Vec::with_capacity(input.len());
        let mut rest = input.as_slice();
        while let Some((&byte, tail)) = rest.split_first() {
            match self.tag(rest) {
                Tag::Whole(length, rank) => {
                    self.rank = Some(rank);
                    self.after_tag = true;
                    rest = &rest[length..];
                }
                Tag::Beginning => {
                    self.pending = rest.to_vec();
                    break;
                }
                Tag::None => {
                    self.take(byte, &mut output);
                    rest = tail;
                }
            }
        }
        output
    }

    /// The stream has ended: what is left, lines without an end given one.
    pub fn finish(mut self) -> Vec<u8> {
        let mut output = Vec::new();
        for byte in std::mem::take(&mut self.pending) {
            self.take(byte, &mut output);
        }
        for rank in 0..self.lines.len() {
            if !self.lines[rank].is_empty() {
                self.flush(rank, &mut output);
            }
        }
        output
    }

    fn take(&mut self, byte: u8, output: &mut Vec<u8>) {
        let after_tag = std::mem::take(&mut self.after_tag);
        let Some(rank) = self.rank else {
            output.push(byte);
            return;
        };
        if after_tag {
            if byte != b' ' && self.style == TagStyle::Unknown {
                self.style = TagStyle::Four;
            }
            if byte == b' ' && self.style != TagStyle::Four {
                return;
            }
        }
        if byte == b'\n' {
            self.flush(rank, output);
            self.rank = None;
            return;
        }
        self.lines[rank].push(byte);
        if self.lines[rank].len() >= LINE_BYTES {
            self.flush(rank, output);
        }
    }

    fn flush(&mut self, rank: usize, output: &mut Vec<u8>) {
        output.extend_from_slice(self.hosts[rank].as_bytes());
        output.extend_from_slice(b": ");
        output.append(&mut self.lines[rank]);
        output.push(b'\n');
    }

    /// Does the text begin with the tag of a rank that there is?
    fn tag(&self, text: &[u8]) -> Tag {
        if text.first() != Some(&b'[') {
            return Tag::None;
        }
        match parse_tag(text) {
            Ok((length, rank)) if rank < self.hosts.len() => Tag::Whole(length, rank),
            Err(true) if text.len() < TAG_BYTES => Tag::Beginning,
            Ok(_) | Err(_) => Tag::None,
        }
    }
}

/// Length and rank of the tag at the beginning of the text. `Err(true)`: it may become one.
fn parse_tag(text: &[u8]) -> Result<(usize, usize), bool> {
    let (job, rest) = digits(text.strip_prefix(b"[").ok_or(false)?, b',')?;
    let (rank, rest) = digits(rest, b']')?;
    let _: usize = job;
    for stream in [&b"<stdout>:"[..], b"<stderr>:", b"<stddiag>:"] {
        if let Some(rest) = rest.strip_prefix(stream) {
            return Ok((text.len() - rest.len(), rank));
        }
        if stream.starts_with(rest) {
            return Err(true);
        }
    }
    Err(false)
}

/// A number and what follows its end mark.
fn digits(text: &[u8], end: u8) -> Result<(usize, &[u8]), bool> {
    let length = text.iter().take_while(|b| b.is_ascii_digit()).count();
    match text.get(length) {
        None => Err(true),
        Some(mark) if *mark == end => {
            let number =
                std::str::from_utf8(&text[..length]).ok().and_then(|s| s.parse().ok()).ok_or(false)?;
            Ok((number, &text[length + 1..]))
        }
        Some(_) => Err(false),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hosts() -> Vec<String> {
        ["n0", "n1", "n2"].map(str::to_owned).to_vec()
    }

    fn filtered(style: TagStyle, pieces: &[&[u8]]) -> String {
        let mut filter = TagFilter::new(hosts(), style);
        let mut output: Vec<u8> = pieces.iter().flat_map(|piece| filter.feed(piece)).collect();
        output.extend(filter.finish());
        String::from_utf8(output).unwrap()
    }

    /// As Open MPI 4.1.4 wrote it: parts of lines of several ranks on one line.
    #[test]
    fn four_mixes_ranks_on_one_line() {
        let read =
            b"[1,0]<stdout>:part[1,2]<stdout>:part[1,0]<stdout>:ial 0\n[1,2]<stdout>:ial 2\n[1,1]<stdout>:\n";
        assert_eq!(filtered(TagStyle::Unknown, &[read]), "n0: partial 0\nn2: partial 2\nn1: \n");
    }

    /// As Open MPI 5.0.11 wrote it.
    #[test]
    fn five_puts_a_space() {
        let read = b"[1,0]<stdout>: hello\n[1,0]<stdout>:  lead\n[1,1]<stdout>: \n";
        assert_eq!(filtered(TagStyle::Unknown, &[read]), "n0: hello\nn0:  lead\nn1: \n");
        assert_eq!(filtered(TagStyle::Five, &[read]), "n0: hello\nn0:  lead\nn1: \n");
    }

    #[test]
    fn four_keeps_indentation() {
        let read = b"[1,0]<stdout>:a\n[1,0]<stdout>:  indented\n";
        assert_eq!(filtered(TagStyle::Unknown, &[read]), "n0: a\nn0:   indented\n");
        assert_eq!(filtered(TagStyle::Four, &[b"[1,0]<stdout>: x\n"]), "n0:  x\n");
    }

    #[test]
    fn what_has_no_tag_passes() {
        let read = b"mpirun noticed [that]\n[1,9]<stdout>:no such rank\n[1,1]<stderr>:x\n[2024-01-01] log\n[";
        assert_eq!(
            filtered(TagStyle::Unknown, &[read]),
            "mpirun noticed [that]\n[1,9]<stdout>:no such rank\nn1: x\n[2024-01-01] log\n["
        );
    }

    #[test]
    fn a_line_without_an_end_comes_out() {
        assert_eq!(filtered(TagStyle::Four, &[b"[1,0]<stdout>:a", b"[1,1]<stdout>:b"]), "n0: a\nn1: b\n");
    }

    #[test]
    fn memory_is_bounded() {
        let mut filter = TagFilter::new(hosts(), TagStyle::Four);
        let mut out = filter.feed(b"[1,0]<stdout>:").len();
        for _ in 0..100 {
            out += filter.feed(&[b'x'; 10_000]).len();
        }
        assert!(out > 900_000, "{out} bytes came out");
        assert!(filter.lines[0].len() <= LINE_BYTES && filter.pending.len() <= TAG_BYTES);
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_give_the_same(
            text in proptest::collection::vec(prop_oneof![
                Just("[1,0]<stdout>:".to_owned()), Just("[1,2]<stdout>: ".to_owned()), Just("\n".to_owned()),
                Just("[1,".to_owned()), "[a-z \\[\\]0-9,<]{0,6}"], 0..30),
            cuts in proptest::collection::vec(1_usize..9, 1..60),
        ) {
            let text = text.concat().into_bytes();
            let mut pieces = Vec::new();
            let mut rest = text.as_slice();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break; }
                let (piece, tail) = rest.split_at((*cut).min(rest.len()));
                pieces.push(piece);
                rest = tail;
            }
            prop_assert_eq!(filtered(TagStyle::Unknown, &pieces), filtered(TagStyle::Unknown, &[&text]));
        }

        #[test]
        fn whole_lines_of_five_are_told_apart(lines in proptest::collection::vec((0_usize..3, "[a-z ]{0,12}"), 0..20)) {
            let (mut read, mut wanted) = (String::new(), String::new());
            for (rank, text) in &lines {
                read += &["[1,", &rank.to_string(), "]<stdout>: ", text, "\n"].concat();
                wanted += &["n", &rank.to_string(), ": ", text, "\n"].concat();
            }
            prop_assert_eq!(filtered(TagStyle::Unknown, &[read.as_bytes()]), wanted);
        }
    }
}
