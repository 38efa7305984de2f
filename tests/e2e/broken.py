"""How scenarios break things: slow links, daemons and containers that are killed or stopped, images that come later."""

import contextlib
import os
import re

from kubernetes import SYSTEM, Failed


def operator_pod(kube):
    return kube.pods(SYSTEM, "app.kubernetes.io/name=gridcast-operator")[0]


def kill_operator(kube):
    """SIGKILL, and another pod instead: kubelet would wait longer from time to time before it starts the same one again."""
    before = operator_pod(kube)["metadata"]
    kube.kubectl("-n", SYSTEM, "delete", "pod", before["name"], "--grace-period=0", "--force")
    return lambda: kube.wait("another operator is ready", lambda: is_ready(kube, before["uid"]), 90)


def is_ready(kube, unlike):
    return any(
        pod["metadata"]["uid"] != unlike and "deletionTimestamp" not in pod["metadata"] and all(s["ready"] for s in pod["status"].get("containerStatuses", [{"ready": False}]))
        for pod in kube.pods(SYSTEM, "app.kubernetes.io/name=gridcast-operator")
    )


def agent_pod(kube, node):
    agents = kube.pods(SYSTEM, "app.kubernetes.io/name=gridcast-agent")
    return next(p for p in agents if p["spec"]["nodeName"] == node and "deletionTimestamp" not in p["metadata"])


def container_id(pod, name):
    status = next(s for s in pod["status"]["containerStatuses"] if s["name"] == name)
    return status["containerID"].removeprefix("containerd://")


def signal_container(kube, pod, name, signal):
    node = pod["spec"]["nodeName"].removeprefix("n")
    kube.node("exec", node, "ctr", "-n", "k8s.io", "task", "kill", "--signal", signal, container_id(pod, name))


def kill_container(kube, pod, name):
    signal_container(kube, pod, name, "SIGKILL")


def process_id(kube, pod, name):
    """As the pod's node counts."""
    node = pod["spec"]["nodeName"].removeprefix("n")
    tasks = kube.node("exec", node, "ctr", "-n", "k8s.io", "task", "ls").stdout
    return int(next(line.split()[1] for line in tasks.splitlines() if line.startswith(container_id(pod, name))))


@contextlib.contextmanager
def stopped_agent(kube, node):
    """The node's agent is there, and does nothing."""
    pod = agent_pod(kube, node)
    signal_container(kube, pod, "agent", "SIGSTOP")
    try:
        yield pod
    finally:
        # kubelet may have replaced it, for its silence.
        with contextlib.suppress(Failed):
            signal_container(kube, pod, "agent", "SIGCONT")


@contextlib.contextmanager
def slow_links(kube, mbit):
    """What goes into each node has this rate at most, megabits per second: a transfer lasts as long as its size says."""
    devices = [f"v{node}" for node in kube.nodes()]
    try:
        for device in devices:
            kube.run("tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{mbit}mbit", "burst", "64kb", "latency", "50ms")
        yield
    finally:
        for device in devices:
            kube.run("tc", "qdisc", "del", "dev", device, "root", check=False)


@contextlib.contextmanager
def image_on_all_nodes(kube, image, name):
    """An image under another name, as if it had been pushed: kubelets find it present. Gone afterwards."""
    nodes = [node.removeprefix("n") for node in kube.nodes()]
    try:
        for node in nodes:
            kube.node("exec", node, "ctr", "-n", "k8s.io", "images", "tag", image, name)
        yield
    finally:
        for node in nodes:
            kube.node("exec", node, "ctr", "-n", "k8s.io", "images", "rm", name, check=False)


def noise(path, mebibytes):
    """A file that nothing compresses."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        for _ in range(mebibytes):
            file.write(os.urandom(1 << 20))


def is_staging(kube, name, namespace):
    """A Broadcast's size is known, and not all of its nodes have it: bytes travel."""
    status = (kube.get("bc", name, namespace) or {}).get("status", {})
    return "sizeBytes" in status and status.get("nodesStaged", 0) < status.get("nodesWanted", 0)


def uids(kube, name, namespace):
    return {p["metadata"]["name"]: p["metadata"]["uid"] for p in kube.pods(namespace, f"gridcast.io/cluster={name}")}


def staged_on(kube, namespace):
    """What nodes hold of a namespace's data: nothing is left of what was deleted."""
    held = {}
    for node in kube.nodes():
        script = f"ls -A /var/lib/gridcast/data/{namespace} 2>/dev/null || true"
        held[node] = kube.node("exec", node.removeprefix("n"), "sh", "-c", script).stdout.split()
    return {node: names for node, names in held.items() if names}


def sysctls(kube, pod, namespace, keys):
    """What the settings are inside a pod, as it sees them itself."""
    files = " ".join("/proc/sys/" + key.replace(".", "/") for key in keys)
    told = kube.kubectl("-n", namespace, "exec", pod, "-c", "node", "--", "sh", "-c", f"for f in {files}; do cat $f; done")
    return dict(zip(keys, (re.sub(r"\s+", " ", line.strip()) for line in told.strip().splitlines()), strict=True))
