//! `gridcast-starter rank`: seen before it runs, and its end known.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};

use crate::support::{Cluster, PROGRAM, outcome};

fn rank(cluster: &Cluster, number: u32, program: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["rank", "--"]).args(program).stdin(Stdio::null());
    command.env("GRIDCAST_SOCKET", cluster.socket(1)).env("GRIDCAST_LAUNCH", "l-1");
    command.env("PMIX_RANK", number.to_string()).env("OMPI_COMM_WORLD_SIZE", "8");
    command
}

fn kernel_tells_exits() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap(), numbers.next().unwrap()) >= (6, 15)
}

#[tokio::test]
async fn a_rank_is_seen_with_its_end() {
    let cluster = Cluster::new(1);
    // "true" is the shortest rank there is.
    let mut children = Vec::new();
    for (number, program) in
        [(0, &["true"][..]), (1, &["sh", "-c", "exit 5"]), (2, &["sh", "-c", "kill -BUS $$"]), (3, &["cat"])]
    {
        let mut command = rank(&cluster, number, program);
        if number == 3 {
            command.stdin(Stdio::piped());
        }
        let mut child = command.spawn().unwrap();
        let pid = i64::from(child.id());
        if number < 3 {
            child.wait().unwrap();
        } else {
            while cluster.ranks(1, "l-1").await.len() < 4 {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        }
        children.push((pid, child));
    }
    let ranks = cluster.ranks(1, "l-1").await;
    let told = |code, signal| if kernel_tells_exits() { (code, signal) } else { (-1, 0) };
    let expected = [(true, told(0, 0)), (true, told(5, 0)), (true, told(0, libc::SIGBUS)), (false, (-1, 0))];
    assert_eq!(ranks.len(), 4);
    for (index, (rank, (ended, (code, signal)))) in ranks.iter().zip(expected).enumerate() {
        assert_eq!((rank.rank as usize, rank.world, rank.pid), (index, 8, children[index].0));
        assert_eq!((rank.ended, rank.code, rank.signal), (ended, code, signal), "{rank:?}");
    }
    assert_eq!(ranks[1].program, "sh");
    assert!(ranks[0].age_micros > ranks[2].age_micros);
    assert!(cluster.ranks(1, "l-2").await.is_empty());
    let (_, mut last) = children.pop().unwrap();
    drop(last.stdin.take());
    last.wait().unwrap();
    assert!(cluster.ranks(1, "l-1").await[3].ended);
}

#[tokio::test]
async fn the_program_gets_its_arguments_streams_and_default_signals() {
    let cluster = Cluster::new(1);
    let output = rank(&cluster, 0, &["printf", "%s|", "-h", "--", "a b"]).output().unwrap();
    assert_eq!(outcome(&output), (Some(0), "-h|--|a b|".into(), String::new()));
    let output = rank(&cluster, 1, &["sh", "-c", "kill -PIPE $$"]).output().unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGPIPE), "SIGPIPE is not ignored");
}

#[tokio::test]
async fn a_program_that_cannot_run_is_named_with_rank_and_host() {
    let cluster = Cluster::new(1);
    let host = nix::unistd::gethostname().unwrap().into_string().unwrap();
    for (program, expected) in [("no-such-program", 127), ("/etc/passwd", 126)] {
        let (code, _, err) = outcome(&rank(&cluster, 3, &[program]).output().unwrap());
        assert_eq!(code, Some(expected));
        assert!(err.contains(&format!("rank 3 on {host}")) && err.contains(program), "{err}");
    }
    let ranks = cluster.ranks(1, "l-1").await;
    if kernel_tells_exits() {
        assert_eq!(ranks.iter().map(|rank| rank.code).collect::<Vec<_>>(), [127, 126]);
    }
}

#[tokio::test]
async fn a_program_runs_although_nobody_listens_and_says_so() {
    let cluster = Cluster::new(1);
    let mut deaf = rank(&cluster, 0, &["echo", "ran"]);
    let (code, out, err) = outcome(&deaf.env("GRIDCAST_SOCKET", "/no/socket").output().unwrap());
    assert_eq!((code, out.as_str()), (Some(0), "ran\n"));
    assert!(err.contains("rank 0 on ") && err.contains("/no/socket") && err.contains("unseen"), "{err}");
    let mut alone = rank(&cluster, 0, &["echo", "ran"]);
    let (code, out, err) = outcome(&alone.env_remove("PMIX_RANK").output().unwrap());
    assert_eq!((code, out.as_str()), (Some(0), "ran\n"));
    assert!(err.contains("mpirun"), "{err}");
    assert!(cluster.ranks(1, "l-1").await.is_empty());
}

#[tokio::test]
async fn a_rank_of_any_user_is_seen() {
    let cluster = Cluster::new(1);
    // The binary need not be readable for that user where it was built.
    let copy = cluster.path("starter");
    std::fs::copy(PROGRAM, &copy).unwrap();
    let mut command = Command::new(&copy);
    command.args(["rank", "true"]).env("GRIDCAST_SOCKET", cluster.socket(1)).env("PMI_RANK", "6");
    let output = command.uid(65534).gid(65534).output().unwrap();
    assert_eq!(outcome(&output), (Some(0), String::new(), String::new()));
    assert_eq!(cluster.ranks(1, "").await[0].rank, 6);
}
