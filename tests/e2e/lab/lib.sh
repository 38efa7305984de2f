# Names and functions that all scripts of the lab share. Sourced, never run.
#   LAB    state directory, absolute (default target/e2e/lab): bin/ pki/ log/ run/ nodes/
#   NODES  how many nodes (default 3, at most 9)
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../../.." && pwd)
LAB=${LAB:-$ROOT/target/e2e/lab}
[[ $LAB == /* ]] || { echo "LAB must be absolute" >&2; exit 2; }
[[ $(id -u) == 0 ]] || { echo "a lab needs root: it makes namespaces, mounts and cgroups" >&2; exit 2; }
NODES=${NODES:-3}
BIN=$LAB/bin PKI=$LAB/pki RUN=$LAB/run LOG=$LAB/log
PATH=$BIN:$PATH

# Every name that the machine sees begins so; the state directory tells labs apart.
NS=gc-$(printf %s "$LAB" | cksum | awk '{ printf "%04x", $1 % 65536 }')
# Whoever lives in the lab holds this lock: what belongs to a free one is left over, and may be removed.
LOCKS=/run/lock/gridcast-e2e
LOCK=$LOCKS/$NS.lock

# Addresses. Nothing of these exists outside the lab's network namespaces:
#   $NS-cp  bridge gcbr0 10.77.0.1   control plane, CoreDNS, and the tests
#   $NS-nN  eth0         10.77.0.1N  node N; its pods are 10.78.N.0/24
CP_NS=$NS-cp CP_IP=10.77.0.1 SVC_CIDR=10.79.0.0/24 SVC_API=10.79.0.1
POD_NET=10.78.0.0/16
CLUSTER_DOMAIN=${CLUSTER_DOMAIN:-cluster.local}
node_ip()  { echo 10.77.0.1$1; }
node_net() { echo 10.78.$1.0/24; }
# The v1 hierarchies ("cpu", "memory", ... and the named "systemd").
V1=$(awk '$3 == "cgroup" { n = split($2, p, "/"); print p[n] }' /proc/self/mounts | sort -u)

now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.1f", b - a }'; }
say() { printf '%s\n' "$*" >&2; }

# Processes are known by "pid start-time", so a pid that was used again since is never signalled.
start_of() {
    local s f
    { s=$(<"/proc/$1/stat"); } 2>/dev/null || return 1
    read -ra f <<<"${s##*) }"
    [[ ${f[0]} != Z ]] || return 1            # dead, if not yet reaped by init
    echo "${f[19]}"
}
remember() { echo "$2 $(start_of "$2")" >"$RUN/$1.pid"; }             # NAME PID
pid_of() {                                                            # NAME
    local p t
    read -r p t 2>/dev/null <"$RUN/$1.pid" && [[ -n $t && $(start_of "$p") == "$t" ]] && echo "$p"
}
end() {                                                  # NAME [SIGNAL]: and wait
    local p i sig=${2:-TERM}
    p=$(pid_of "$1") || { rm -f "$RUN/$1.pid"; return 0; }
    kill -"$sig" "$p" 2>/dev/null || true
    for ((i = 0; i < 100; i++)); do pid_of "$1" >/dev/null || break; sleep 0.1; done
    ! pid_of "$1" >/dev/null || kill -KILL "$p" 2>/dev/null || true
    rm -f "$RUN/$1.pid"
}
# The one child of PID, once it is there. Only sure where PID was exec'd from a shell that started no child of its own
# first, not even a $(...).
child_of() {
    local c i
    for ((i = 0; i < 200; i++)); do
        c=$(cat "/proc/$1/task/$1/children") || return 1
        [[ -z $c ]] || { echo "${c%% *}"; return; }
        sleep 0.05
    done
    return 1
}
spawn() {                                       # NAME CMD...: own session, log
    local name=$1; shift
    setsid "$@" </dev/null >>"$LOG/$name.log" 2>&1 &
    remember "$name" $!
}
# `ip netns exec` mounts a new /sys and so hides /sys/fs/cgroup: use nsenter.
in_cp() { nsenter --net=/run/netns/$CP_NS -- "$@"; }
kc() { in_cp kubectl --kubeconfig "$PKI/admin.conf" "$@"; }
wait_for() {                                    # SECONDS CMD...
    local end=$((SECONDS + $1)); shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < end)) || { say "gave up on: $*"; return 1; }
        sleep 0.2
    done
}
