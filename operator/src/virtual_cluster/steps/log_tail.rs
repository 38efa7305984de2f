//! What is the end of what a program wrote, for a status?

use std::collections::VecDeque;

/// Bytes of the text.
pub const TEXT_BYTES: usize = 8192;
/// Bytes that are kept of the output: what is not text, such as colours, goes.
const KEPT_BYTES: usize = 4 * TEXT_BYTES;
/// A line that is cut in the middle is left out where that costs no more than this.
const LINE_BYTES: usize = 512;

/// The end of some output.
#[derive(Clone, Debug, Default)]
pub struct LogTail {
    kept: VecDeque<u8>,
    /// Something came before what is kept.
    cut: bool,
}

impl LogTail {
    /// Takes what was written next.
    pub fn push(&mut self, output: &[u8]) {
        let output = &output[output.len().saturating_sub(KEPT_BYTES)..];
        let surplus = (self.kept.len() + output.len()).saturating_sub(KEPT_BYTES);
        self.cut |= surplus > 0 || output.len() == KEPT_BYTES;
        self.kept.drain(..surplus.min(self.kept.len()));
        self.kept.extend(output);
    }

    /// The end of it as text: at most [`TEXT_BYTES`] of whole characters, lines ended by `\n`, without control characters
    /// but the tabulator. It begins with a whole line where that is possible.
    pub fn text(&self) -> String {
        let (a, b) = self.kept.as_slices();
        let text = printable(&String::from_utf8_lossy(&[a, b].concat()));
        let end = &text[text.ceil_char_boundary(text.len().saturating_sub(TEXT_BYTES))..];
        if end.len() == text.len() && !self.cut {
            return text;
        }
        match end.find('\n') {
            Some(at) if at < LINE_BYTES => end[at + 1..].to_owned(),
            _ => end.to_owned(),
        }
    }
}

/// Without control characters and terminals' escape sequences. A carriage return ends a line: progress bars write one over
/// the other.
fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '\u{1b}' => skip_escape(&mut rest),
            '\r' if rest.peek() == Some(&'\n') => {}
            '\r' => out.push('\n'),
            '\n' | '\t' => out.push(character),
            control if control.is_control() => {}
            other => out.push(other),
        }
    }
    out
}

/// The rest of an escape sequence: `[ … letter` (ECMA-48 CSI), `] … BEL` or `] … ESC \` (OSC), or one character.
fn skip_escape(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match rest.peek() {
        Some('[') => {
            rest.next();
            while rest.next_if(|c| matches!(c, ' '..='?')).is_some() {}
            rest.next_if(|c| matches!(c, '@'..='~'));
        }
        Some(']') => {
            while let Some(character) = rest.next_if(|c| *c != '\n') {
                if character == '\u{7}' {
                    return;
                }
                if character == '\u{1b}' {
                    rest.next_if_eq(&'\\');
                    return;
                }
            }
        }
        Some(' '..='~') => {
            rest.next();
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tail(parts: &[&[u8]]) -> String {
        let mut tail = LogTail::default();
        for part in parts {
            tail.push(part);
        }
        tail.text()
    }

    #[test]
    fn short_output_is_kept_as_it_is() {
        assert_eq!(tail(&[b"one\ntw", b"o\tx\n"]), "one\ntwo\tx\n");
        assert_eq!(tail(&[]), "");
        assert_eq!(tail(&["é".as_bytes(), "\u{fffd}".as_bytes()]), "é\u{fffd}");
    }

    #[test]
    fn what_is_no_text_goes() {
        assert_eq!(tail(&[b"\x1b[1;31mred\x1b[0m \x00\x07bell\r\n10%\r20%\r\n"]), "red bell\n10%\n20%\n");
        assert_eq!(tail(&[b"\x1b]0;title\x07a\x1b]0;title\x1b\\b\x1bcd"]), "abd");
        assert_eq!(tail(&[b"a\xffb"]), "a\u{fffd}b");
    }

    #[test]
    fn the_end_of_long_output_begins_with_a_whole_line() {
        let lines: Vec<u8> = (0..10_000).flat_map(|i| format!("line {i}\n").into_bytes()).collect();
        let text = tail(&[&lines]);
        assert!(text.ends_with("line 9999\n"));
        assert!(text.starts_with("line ") && text.len() > TEXT_BYTES - LINE_BYTES);
        assert!(text.lines().all(|line| line.starts_with("line ")));
        // A single long line is cut.
        assert_eq!(tail(&[&vec![b'x'; 100_000]]).len(), TEXT_BYTES);
    }

    proptest! {
        #[test]
        fn any_output_is_bounded_text(parts in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 0..20_000), 0..6)) {
            let mut tail = LogTail::default();
            for part in &parts {
                tail.push(part);
            }
            let text = tail.text();
            prop_assert!(text.len() <= TEXT_BYTES);
            prop_assert!(tail.kept.len() <= KEPT_BYTES);
            prop_assert!(text.chars().all(|c| !c.is_control() || c == '\n' || c == '\t'));
        }

        #[test]
        fn pieces_make_no_difference(output in proptest::collection::vec(any::<u8>(), 0..3_000), at in 0_usize..3_000) {
            let at = at.min(output.len());
            prop_assert_eq!(tail(&[&output]), tail(&[&output[..at], &output[at..]]));
        }
    }
}
