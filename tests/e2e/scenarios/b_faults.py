"""Things break: workers, agents, kubelets, the operator, DNS. Programs go on or begin again, and the count is right."""

import signal
import os
import time

from kubernetes import SYSTEM, Failed, cluster
from shared import RING, complete, data, expect, placed

SLEEP = ["sh", "-c", "sleep 20"]


def running(kube, name, namespace, timeout=60):
    return kube.wait_condition("vcl", name, namespace, "Running", timeout=timeout)


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


def kill_container(kube, pod, name):
    node = pod["spec"]["nodeName"].removeprefix("n")
    status = next(s for s in pod["status"]["containerStatuses"] if s["name"] == name)
    container = status["containerID"].removeprefix("containerd://")
    kube.node("exec", node, "ctr", "-n", "k8s.io", "task", "kill", "--signal", "SIGKILL", container)


def uids(kube, name, namespace):
    return {p["metadata"]["name"]: p["metadata"]["uid"] for p in kube.pods(namespace, f"gridcast.io/cluster={name}")}


def scenario_dns_is_stopped_after_the_gate(kube):
    pid = int(open(coredns(), encoding="ascii").read().split()[0])
    with kube.namespace("dns") as namespace:
        kube.apply(cluster("ring", ["sh", "-c", "sleep 8; exec examples/ring/ring -n 10 -m 4096"]), namespace)
        running(kube, "ring", namespace)
        os.kill(pid, signal.SIGSTOP)
        try:
            expect("placement", placed(complete(kube, "ring", namespace)), {f"ring-node-{i}": [i] for i in range(3)})
            # Even a whole launch needs no DNS: addresses travel by gRPC.
            kube.apply(cluster("again", ["examples/ring/ring", "-n", "10", "-m", "4096"]), namespace)
            complete(kube, "again", namespace)
        finally:
            os.kill(pid, signal.SIGCONT)


def coredns():
    from kubernetes import LAB

    return f"{LAB}/run/coredns.pid"


def scenario_a_worker_is_killed(kube):
    """maxRestarts 2: killed three times, over an operator restart; exactly two launches more, then the end."""
    with kube.namespace("killed") as namespace:
        kube.apply(cluster("ring", ["sh", "-c", "sleep 60"], spec="restart: {maxRestarts: 2}"), namespace)
        for attempt in range(3):
            kube.wait(
                f"launch {attempt} runs",
                lambda: (kube.get("vcl", "ring", namespace)["status"].get("run", {}).get("restarts", 0) == attempt)
                and (kube.condition("vcl", "ring", namespace, "Running") or {}).get("status") == "True",
                60,
            )
            if attempt == 1:
                kill_operator(kube)()
            kube.kubectl("-n", namespace, "delete", "pod", "ring-node-1", "--grace-period=0", "--force")
        kube.wait_condition("vcl", "ring", namespace, "Failed", reason="RestartBudgetExceeded", timeout=60)
        found = kube.get("vcl", "ring", namespace)
        expect("restarts", found["status"]["run"]["restarts"], 2)
        if "completionTime" not in found["status"]:
            raise Failed("no completion time")
        kube.wait("no pod runs on", lambda: not [p for p in kube.pods(namespace, "gridcast.io/cluster=ring") if p["status"]["phase"] == "Running"], 30)


def scenario_an_agent_is_killed_while_staging(kube):
    with kube.namespace("agent") as namespace:
        path = "/srv/gridcast-e2e/large"
        os.makedirs(path, exist_ok=True)
        with open(f"{path}/block", "wb") as file:
            for _ in range(256):
                file.write(os.urandom(1 << 20))
        kube.volume(namespace, "large", path)
        kube.apply(cluster("ring", RING, spec=data("{persistentVolumeClaim: {claimName: large}}")), namespace)
        kube.wait("staging has begun", lambda: (kube.get("bc", "ring-ics", namespace) or {}).get("status", {}).get("sizeBytes"), 60)
        victim = next(p for p in kube.pods(SYSTEM, "app.kubernetes.io/name=gridcast-agent") if p["spec"]["nodeName"] == "n3")
        kill_container(kube, victim, "agent")
        complete(kube, "ring", namespace, timeout=180)
        os.remove(f"{path}/block")


def scenario_kubelet_and_containerd_are_killed(kube):
    with kube.namespace("kubelet") as namespace:
        kube.apply(cluster("ring", ["sh", "-c", "sleep 30; exec examples/ring/ring -n 10 -m 4096"]), namespace)
        running(kube, "ring", namespace)
        before = uids(kube, "ring", namespace)
        kube.node("kill", 2)
        time.sleep(5)
        kube.node("start", 2)
        found = complete(kube, "ring", namespace, timeout=120)
        expect("restarts", found["status"]["run"]["restarts"], 0)
        expect("pods", {n: u for n, u in uids(kube, "ring", namespace).items() if n in before}.items() <= before.items(), True)
        kube.kubectl("wait", "--for=condition=Ready", "node/n2", "--timeout=60s")
        # Its agent still measures in new pods, and the CSI driver is registered again.
        kube.kubectl("-n", namespace, "create", "configmap", "ics", "--from-literal=a=1")
        kube.apply(cluster("after", RING, spec=data("{configMap: {name: ics}}")), namespace)
        complete(kube, "after", namespace)


def scenario_the_operator_is_killed_at_each_stage(kube):
    with kube.namespace("operator") as namespace:
        kube.kubectl("-n", namespace, "create", "configmap", "ics", "--from-literal=a=1")
        stages = {
            "created": lambda found: found.get("status", {}).get("conditions"),
            "scheduled": lambda found: found.get("status", {}).get("timeline", {}).get("scheduled"),
            "staged": lambda found: found.get("status", {}).get("timeline", {}).get("staged"),
            "measured": lambda found: found.get("status", {}).get("timeline", {}).get("measured"),
            "launched": lambda found: found.get("status", {}).get("timeline", {}).get("launched"),
        }
        notes = []
        for stage, reached in stages.items():
            name = f"at-{stage}"
            kube.apply(cluster(name, ["sh", "-c", "sleep 6; exec examples/ring/ring -n 10 -m 4096 /data/ics"], spec=data("{configMap: {name: ics}}")), namespace)
            kube.wait(f"{name} is {stage}", lambda: reached(kube.get("vcl", name, namespace)), 60, every=0.05)
            back = kill_operator(kube)
            before = uids(kube, name, namespace)
            back()
            found = complete(kube, name, namespace, timeout=120)
            expect(f"restarts when killed at {stage}", found["status"]["run"]["restarts"], 0)
            expect(f"launches when killed at {stage}", found["status"]["run"]["launch"].partition("-")[0], "1")
            after = uids(kube, name, namespace)
            for pod, uid in before.items():
                if after.get(pod, uid) != uid:
                    raise Failed(f"{pod} was replaced although only the operator died at {stage}")
            notes.append(f"{stage}: done")
            kube.kubectl("-n", namespace, "delete", "vcl", name, "--timeout=60s")
        return notes
