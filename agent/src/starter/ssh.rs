//! What did the launcher mean, as it would say it to ssh?
//!
//! `mpirun`, Hydra and scripts call the remote shell with ssh's options. Those that matter to a session without a
//! terminal are understood (`-n`, `-l`/`user@` is accepted and has no effect: everyone is who the starter is), all
//! others are accepted with their arguments and ignored.

use thiserror::Error;

/// ssh's options without an argument (OpenSSH 9).
const FLAGS: &str = "1246AaCfGgKkMNnqsTtVvXxYy";
/// ssh's options with one.
const WITH_ARGUMENT: &str = "BbcDEeFIiJLlmOopPQRSWw";

/// How to use it; printed with every usage error.
pub const USAGE: &str = "usage: gridcast-starter exec [ssh's options] HOST COMMAND…";

/// One remote command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteCommand {
    /// As given, without a user.
    pub host: String,
    /// The arguments joined by single spaces, for `sh -c`.
    pub script: String,
    /// `-n` or `-f`: standard input is not read.
    pub no_stdin: bool,
}

/// Why the arguments do not make a command.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum UsageError {
    /// An option that ssh does not know either.
    #[error("unknown option -{0}\n{USAGE}")]
    UnknownOption(char),
    /// An option at the end of the line that wants an argument.
    #[error("option -{0} needs an argument\n{USAGE}")]
    MissingArgument(char),
    /// Nothing but options.
    #[error("no host given\n{USAGE}")]
    NoHost,
    /// ssh would open a terminal here.
    #[error("no command given for {0}: there is no terminal to open\n{USAGE}")]
    NoCommand(String),
}

/// Understands what follows `gridcast-starter exec`.
pub fn parse(arguments: &[String]) -> Result<RemoteCommand, UsageError> {
    let mut no_stdin = false;
    let rest = skip_options(arguments, &mut no_stdin)?;
    let [host, rest @ ..] = rest else { return Err(UsageError::NoHost) };
    let host = host.rsplit('@').next().unwrap_or(host);
    if host.is_empty() {
        return Err(UsageError::NoHost);
    }
    // Like ssh: options may also stand between the host and the command.
    let command = skip_options(rest, &mut no_stdin)?;
    if command.is_empty() {
        return Err(UsageError::NoCommand(host.to_owned()));
    }
    Ok(RemoteCommand { host: host.to_owned(), script: command.join(" "), no_stdin })
}

fn skip_options<'a>(mut arguments: &'a [String], no_stdin: &mut bool) -> Result<&'a [String], UsageError> {
    while let [first, rest @ ..] = arguments {
        let Some(letters) = first.strip_prefix('-').filter(|letters| !letters.is_empty()) else { break };
        arguments = rest;
        if letters == "-" {
            break;
        }
        let mut letters = letters.chars();
        while let Some(letter) = letters.next() {
            if FLAGS.contains(letter) {
                *no_stdin |= matches!(letter, 'n' | 'f');
            } else if WITH_ARGUMENT.contains(letter) {
                // `-oX` carries its argument; `-o X` takes the next word.
                if letters.next().is_none() {
                    arguments = arguments.get(1..).ok_or(UsageError::MissingArgument(letter))?;
                }
                break;
            } else {
                return Err(UsageError::UnknownOption(letter));
            }
        }
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(line: &[&str]) -> Result<RemoteCommand, UsageError> {
        parse(&line.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn ssh_options_are_accepted_and_ignored() {
        let expected =
            RemoteCommand { host: "h1".into(), script: "orted -mca ess \"env\"".into(), no_stdin: false };
        let command = ["orted", "-mca", "ess", "\"env\""];
        for options in [
            &["h1"][..],
            &["-x", "h1"],
            &["-xq", "-o", "ConnectTimeout=3", "-oBatchMode=yes", "-p", "2222", "-p22", "-l", "root", "u@h1"],
            &["-x", "--", "h1"],
            &["h1", "-q", "-l", "root"],
            &["h1", "--"],
        ] {
            let line: Vec<_> = options.iter().chain(&command).copied().collect();
            assert_eq!(parsed(&line), Ok(expected.clone()), "{line:?}");
        }
    }

    #[test]
    fn options_of_the_command_stay_with_it() {
        let command = parsed(&["-n", "h1", "ls", "-l", "--", "-x"]).unwrap();
        assert_eq!((command.script.as_str(), command.no_stdin), ("ls -l -- -x", true));
        // Arguments are joined, never quoted again.
        assert_eq!(parsed(&["h", "echo 'a  b'", "$X"]).unwrap().script, "echo 'a  b' $X");
    }

    #[test]
    fn usage_errors_say_what_is_missing() {
        assert_eq!(parsed(&[]), Err(UsageError::NoHost));
        assert_eq!(parsed(&["-x"]), Err(UsageError::NoHost));
        assert_eq!(parsed(&["h1"]), Err(UsageError::NoCommand("h1".into())));
        assert_eq!(parsed(&["-o"]), Err(UsageError::MissingArgument('o')));
        assert_eq!(parsed(&["-z", "h1", "true"]), Err(UsageError::UnknownOption('z')));
    }

    proptest! {
        #[test]
        fn any_line_is_survived(line in proptest::collection::vec(any::<String>(), 0..6)) {
            if let Ok(command) = parse(&line) {
                prop_assert!(!command.host.is_empty());
            }
        }
    }
}
