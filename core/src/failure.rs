//! How is an error told on one line?

use std::error::Error;

/// An error and its causes, `a: b: c`. A cause that the text before it already ends with is left out: some libraries
/// repeat their cause in their own text.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot open the door")]
    struct Outer(#[source] Middle);

    #[derive(Debug, thiserror::Error)]
    #[error("the lock is stuck: rust")]
    struct Middle(#[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("rust")]
    struct Inner;

    #[test]
    fn each_cause_is_told_once() {
        assert_eq!(chain(&Outer(Middle(Inner))), "cannot open the door: the lock is stuck: rust");
    }
}
