"""Things break: workers, agents, kubelets, the operator, DNS. Programs go on or begin again, and the count is right."""

import os
import shutil
import signal
import time

from broken import agent_pod, is_staging, kill_container, kill_operator, noise, slow_links, staged_on, stopped_agent, uids
from kubernetes import Failed, cluster
from shared import FOLDERS, RING, complete, data, expect, placed

SLEEP = ["sh", "-c", "sleep 20"]


def running(kube, name, namespace, timeout=60):
    return kube.wait_condition("vcl", name, namespace, "Running", timeout=timeout)


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
    with kube.namespace("agent") as namespace, slow_links(kube, 60):
        noise(f"{FOLDERS}/large/block", 40)
        kube.volume(namespace, "large", f"{FOLDERS}/large")
        kube.apply(cluster("ring", RING, spec=data("{persistentVolumeClaim: {claimName: large}}")), namespace)
        kube.wait("staging has begun", lambda: is_staging(kube, "ring-ics", namespace), 60, every=0.05)
        kill_container(kube, agent_pod(kube, "n3"), "agent")
        if not is_staging(kube, "ring-ics", namespace):
            raise Failed("all was staged before the agent was killed")
        complete(kube, "ring", namespace, timeout=180)
        os.remove(f"{FOLDERS}/large/block")


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


def reached(kube, name, namespace, stage):
    status = (kube.get("vcl", name, namespace) or {}).get("status", {})
    ready = next((c for c in status.get("conditions", []) if c["type"] == "Ready"), {})
    return {
        "created": bool(status.get("conditions")),
        "staging": is_staging(kube, f"{name}-ics", namespace),
        "collecting": ready.get("reason") == "Collecting",
    }.get(stage, status.get("timeline", {}).get(stage))


def scenario_the_operator_is_killed_at_each_stage(kube):
    """One cluster, and its operator dies at each of its stages: no member is touched, nothing begins anew, all is brought home."""
    with kube.namespace("operator") as namespace, slow_links(kube, 60):
        noise(f"{FOLDERS}/staged/block", 40)
        shutil.rmtree(f"{FOLDERS}/brought", ignore_errors=True)
        for claim in ("staged", "brought"):
            os.makedirs(f"{FOLDERS}/{claim}", mode=0o777, exist_ok=True)
            kube.volume(namespace, claim, f"{FOLDERS}/{claim}")
        results = "mkdir -p /tmp/out && head -c 12582912 /dev/urandom > /tmp/out/$OMPI_COMM_WORLD_RANK"
        command = ["sh", "-c", f"sleep 20; {results}; exec examples/ring/ring -n 10 -m 4096 /data/ics"]
        spec = "network: {probe: {count: 200}, tcp: {mode: Apply, profile: Staggered}}\n" + data("{persistentVolumeClaim: {claimName: staged}}")
        collect = "collect: [{path: /tmp/out, to: {persistentVolumeClaim: {claimName: brought}}}]"
        kube.apply(cluster("ring", command, spec=spec, run=collect), namespace)
        before = {}
        for stage in ("created", "scheduled", "staging", "staged", "measured", "tuned", "launched", "collecting"):
            kube.wait(f"{stage}", lambda: reached(kube, "ring", namespace, stage), 90, every=0.05)
            back = kill_operator(kube)
            if stage in ("staging", "collecting") and not reached(kube, "ring", namespace, stage):
                raise Failed(f"{stage} was over before the operator was killed")
            # A name that is new is a pod that the operator of before had asked for; one that is known keeps its pod.
            members = {pod: uid for pod, uid in uids(kube, "ring", namespace).items() if pod.startswith("ring-node-")}
            touched = [pod for pod, uid in before.items() if members.get(pod) != uid]
            if touched:
                raise Failed(f"{touched} went by {stage}, although only operators died")
            before = members
            back()
        found = complete(kube, "ring", namespace, timeout=120)
        expect("launches", found["status"]["run"]["launch"].partition("-")[0], "1")
        expect("sizes of what was collected", {f.name: f.stat().st_size for f in os.scandir(f"{FOLDERS}/brought/out")}, {str(rank): 12582912 for rank in range(3)})
        if not all(setting["restored"] for setting in found["status"]["tcp"]):
            raise Failed(f"settings are not restored: {found['status']['tcp']}")
        kube.kubectl("-n", namespace, "delete", "vcl", "ring", "--timeout=60s")


def scenario_the_operator_is_killed_while_deleting(kube):
    """A node's agent says nothing, so that the finalizers wait; the operator dies over it, and the next one finishes."""
    with kube.namespace("finalizer") as namespace:
        kube.kubectl("-n", namespace, "create", "configmap", "ics", "--from-literal=a=1")
        spec = "network: {tcp: {mode: Apply, profile: Staggered}}\n" + data("{configMap: {name: ics}}")
        kube.apply(cluster("ring", ["sleep", "600"], spec=spec), namespace)
        running(kube, "ring", namespace)
        expect("nodes that hold the data", sorted(staged_on(kube, namespace)), kube.nodes())
        with stopped_agent(kube, "n3"):
            kube.kubectl("-n", namespace, "delete", "vcl", "ring", "--wait=false")
            for kind, name in (("vcl", "ring"), ("bc", "ring-ics")):
                kube.wait(f"{kind} is being deleted", lambda: is_going(kube.get(kind, name, namespace)), 60, every=0.05)
                back = kill_operator(kube)
                if not is_going(kube.get(kind, name, namespace)):
                    raise Failed(f"{kind} was gone before the operator was killed")
                back()
                if kind == "vcl":
                    kube.wait_gone("vcl", "ring", namespace, 90)
        kube.wait_gone("bc", "ring-ics", namespace, 90)
        kube.wait("no pod is left", lambda: not kube.pods(namespace), 60)
        expect("data that is left on nodes", staged_on(kube, namespace), {})


def is_going(found):
    return found is not None and "deletionTimestamp" in found["metadata"]
