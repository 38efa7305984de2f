"""The long ones: nodes that go and come, every stage of a deletion, every example, figures, silence."""

import glob
import json
import os
import shutil
import statistics
import subprocess
import time

from b_faults import running
from kubernetes import HERE, LAB, ROOT, SYSTEM, Failed, cluster, seconds
from shared import FOLDERS, RING, complete, data, dataset, expect, placed

LONG = True
SHORT_RING = ["examples/ring/ring", "-n", "10", "-m", "4096"]


def waiting_ring(seconds_):
    return ["sh", "-c", f"sleep {seconds_}; exec examples/ring/ring -n 10 -m 4096"]


def scenario_another_cluster_domain(kube):
    """A cluster of one node whose domain is k8s.example: nothing knows cluster.local."""
    folder = os.path.join(os.path.dirname(LAB), "domain")
    environment = {**os.environ, "LAB": folder, "NODES": "1", "CLUSTER_DOMAIN": "k8s.example"}
    os.makedirs(folder, exist_ok=True)
    if not os.path.exists(f"{folder}/bin"):
        os.symlink(f"{LAB}/bin", f"{folder}/bin")
    tool = f"""
import os, sys
sys.path[:0] = [{HERE!r}, {HERE + "/scenarios"!r}]
import kubernetes, shared
kube = kubernetes.Kubernetes()
kube.helm("install", "gridcast", "charts/gridcast", "-n", kubernetes.SYSTEM, "--create-namespace")
kube.kubectl("-n", kubernetes.SYSTEM, "rollout", "status", "daemonset/gridcast-agent", "--timeout=90s")
with kube.namespace("domain") as namespace:
    kube.kubectl("-n", namespace, "create", "configmap", "ics", "--from-literal=a=1")
    kube.apply(kubernetes.cluster("ring", shared.RING, groups=[("node", 2, 1)], spec=shared.data("{{configMap: {{name: ics}}}}")), namespace)
    shared.complete(kube, "ring", namespace)
"""
    images = [f"{ROOT}/target/images/{name}.tar" for name in ("pause", "operator", "agent", "sl-openmpi")]
    try:
        subprocess.run([f"{HERE}/lab/up", *images], env=environment, check=True, capture_output=True)
        done = subprocess.run(["/usr/bin/python3", "-B", "-c", tool], env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(done.stderr.strip().splitlines()[-1])
    finally:
        subprocess.run([f"{HERE}/lab/down", "--purge"], env=environment, capture_output=True)


def scenario_a_member_is_evicted(kube):
    with kube.namespace("evicted") as namespace:
        kube.apply(cluster("ring", waiting_ring(15), spec="restart: {maxRestarts: 1}"), namespace)
        running(kube, "ring", namespace)
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "ring-node-1", "namespace": namespace}}
        path = f"/api/v1/namespaces/{namespace}/pods/ring-node-1/eviction"
        refused = kube.run("kubectl", "create", "--raw", path, "-f", "-", stdin=json.dumps(eviction), check=False)
        if refused.returncode == 0 or "disruption budget" not in refused.stderr:
            raise Failed(f"the PodDisruptionBudget did not hold: {refused.stderr or 'evicted'}")
        # Kubelet's own evictions ask nobody.
        status = {"status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}}
        kube.kubectl("-n", namespace, "patch", "pod", "ring-node-1", "--subresource=status", "--type=merge", "-p", json.dumps(status))
        kube.wait("it is launched again", lambda: kube.get("vcl", "ring", namespace)["status"]["run"]["restarts"] == 1, 60)
        kube.wait_condition("vcl", "ring", namespace, "Ready", reason="Completed", timeout=90)
        expect("restarts", kube.get("vcl", "ring", namespace)["status"]["run"]["restarts"], 1)


def scenario_a_node_is_drained(kube):
    with kube.namespace("drained") as namespace:
        kube.kubectl("-n", namespace, "create", "configmap", "ics", "--from-literal=a=1")
        kube.apply(cluster("nodes", None, spec="scheduling: {allowColocation: true}\n" + data("{configMap: {name: ics}}")), namespace)
        kube.wait_condition("vcl", "nodes", namespace, "Ready")
        node = kube.get("vcl", "nodes", namespace)["status"]["nodes"][0]["node"]
        try:
            kube.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=90s", timeout=120)
            kube.wait(
                "its members are elsewhere, and ready",
                lambda: all(e["ready"] and e.get("node") != node for e in kube.get("vcl", "nodes", namespace)["status"]["nodes"]),
                90,
            )
        finally:
            kube.kubectl("uncordon", node)


def scenario_a_node_is_switched_off_and_replaced(kube):
    with kube.namespace("off") as namespace:
        kube.kubectl("-n", namespace, "create", "configmap", "ics", "--from-literal=a=1")
        kube.apply(cluster("ring", waiting_ring(20), spec="restart: {maxRestarts: 2}\n" + data("{configMap: {name: ics}}")), namespace)
        running(kube, "ring", namespace)
        expect("nodes", {e["node"] for e in kube.get("vcl", "ring", namespace)["status"]["nodes"]}, {"n1", "n2", "n3"})
        victim = "n3" if kube.pods(SYSTEM, "app.kubernetes.io/name=gridcast-operator")[0]["spec"]["nodeName"] != "n3" else "n2"
        images = [f"{ROOT}/target/images/{name}.tar" for name in ("pause", "busybox", "operator", "agent", "sl-openmpi", "sl-mpich")]
        try:
            kube.node("down", victim[1:])
            kube.wait_condition("vcl", "ring", namespace, "Ready", reason="Completed", timeout=180)
            found = kube.get("vcl", "ring", namespace)
            if victim in {e["node"] for e in found["status"]["nodes"]}:
                raise Failed(f"{victim} is off, and a member is said to be there")
        finally:
            # A new machine under the old name.
            shutil.rmtree(f"{LAB}/nodes/{victim}", ignore_errors=True)
            kube.kubectl("delete", "node", victim, check=False)
            kube.node("up", victim[1:])
            kube.node("start", victim[1:])
            kube.node("load", victim[1:], *images)
            kube.wait("the node is there", lambda: kube.get("node", victim), 60)
            kube.kubectl("wait", "--for=condition=Ready", f"node/{victim}", "--timeout=60s")
            kube.kubectl("-n", SYSTEM, "rollout", "status", "daemonset/gridcast-agent", "--timeout=90s")
        kube.apply(cluster("after", SHORT_RING), namespace)
        complete(kube, "after", namespace)


def scenario_radix_2(kube):
    """The third daemon is started by a worker, not by the launcher."""
    with kube.namespace("radix") as namespace:
        environment = "environment: [" + ", ".join(
            f"{{name: {name}, value: '2'}}" for name in ("OMPI_MCA_routed_radix", "PRTE_MCA_routed_radix")
        ) + "]"
        kube.apply(cluster("ring", waiting_ring(15), groups=[("node", 6, 1)], run=environment), namespace)
        running(kube, "ring", namespace)
        by = kube.wait("all daemons were started", lambda: len(sum((by := starts(kube, namespace)).values(), [])) >= 5 and by, 30)
        workers = {node: started for node, started in by.items() if node != "ring-node-0" and started}
        if len(by.get("ring-node-0", [])) != 2 or not workers:
            raise Failed(f"daemons were started by {by}")
        expect("placement", placed(complete(kube, "ring", namespace)), {f"ring-node-{i}": [i] for i in range(6)})
        return [f"daemons were started by {by}"]


def starts(kube, namespace):
    """For each node, the others on which it started something: `gridcast-starter exec HOST …` goes on as long as that does."""
    script = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null; echo; done"
    by = {}
    for pod in kube.pods(namespace, "gridcast.io/cluster=ring"):
        name = pod["metadata"]["name"]
        told = kube.kubectl("-n", namespace, "exec", name, "-c", "node", "--", "sh", "-c", script)
        words = [line.split() for line in told.splitlines()]
        by[name] = sorted(w[2] for w in words if len(w) > 2 and w[0].endswith("gridcast-starter") and w[1] == "exec")
    return by


def scenario_deleted_in_each_stage(kube):
    with kube.namespace("stages") as namespace:
        kube.kubectl("-n", namespace, "create", "configmap", "ics", "--from-literal=a=1")
        for stage in ("created", "scheduled", "staged", "ready", "measured", "tuned", "launched", "finished"):
            name = f"at-{stage}"
            spec = "network: {tcp: {mode: Apply, profile: Staggered}}\n" + data("{configMap: {name: ics}}")
            kube.apply(cluster(name, ["true"] if stage == "finished" else ["sleep", "30"], spec=spec), namespace)
            kube.wait(
                f"{name} is {stage}", lambda: (kube.get("vcl", name, namespace) or {}).get("status", {}).get("timeline", {}).get(stage), 60, every=0.05
            )
            kube.kubectl("-n", namespace, "delete", "vcl", name, "--timeout=60s")
            kube.wait("nothing of it is left", lambda: not kube.pods(namespace) and not kube.get("bc", namespace=namespace), 60)
            for kind in ("secret", "configmap", "service", "networkpolicy", "poddisruptionbudget"):
                kube.wait(
                    f"no {kind} is left",
                    lambda: not [o for o in kube.get(kind, namespace=namespace) if o["metadata"]["name"].startswith(name)], 60,
                )


def scenario_every_example(kube):
    with kube.namespace("examples") as namespace:
        dataset(f"{FOLDERS}/ics")
        for claim in ("programs", "results"):
            shutil.rmtree(f"{FOLDERS}/{claim}", ignore_errors=True)
            os.makedirs(f"{FOLDERS}/{claim}")
        os.chmod(f"{FOLDERS}/results", 0o777)
        shutil.copy(f"{ROOT}/examples/sedov/sedov", f"{FOLDERS}/programs/sedov")
        for claim in ("ics", "programs", "results"):
            kube.volume(namespace, claim, f"{FOLDERS}/{claim}")
        for file in sorted(glob.glob(f"{ROOT}/examples/*.yaml")):
            text = open(file, encoding="utf-8").read()
            if "kind: VirtualCluster" not in text:
                continue
            kube.kubectl("-n", namespace, "apply", "-f", file)
            name = next(line.split()[1] for line in text.split("kind: VirtualCluster")[1].splitlines() if line.strip().startswith("name:"))
            complete(kube, name, namespace, timeout=240)
            kube.kubectl("-n", namespace, "delete", "vcl", name, "--timeout=60s")


def scenario_pod_security_levels(kube):
    for level in ("privileged", "baseline", "restricted"):
        with kube.namespace(f"level-{level}", {"pod-security.kubernetes.io/enforce": level}) as namespace:
            text = cluster(
                "ring", SHORT_RING,
                pod="securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}",
            ).replace("        containers:", "        securityContext: {runAsNonRoot: true, runAsUser: 1234, seccompProfile: {type: RuntimeDefault}}\n        containers:")
            kube.apply(text, namespace)
            complete(kube, "ring", namespace)
            if level != "restricted":
                continue
            # What the namespace does not admit is told in the server's words.
            kube.apply(cluster("root", SHORT_RING), namespace)
            kube.wait_condition("vcl", "root", namespace, "Ready", "False", message="PodSecurity", timeout=20)


def scenario_a_thousand_pods(kube):
    """1,000 pods that no node takes: how fast they are made, with how many writes, in how much memory, seen meanwhile."""
    with kube.namespace("thousand") as namespace:
        pids = [p for p in os.listdir("/proc") if p.isdigit() and read(f"/proc/{p}/comm").strip() == "gridcast-operat"]
        if not pids:
            raise Failed("no process is called gridcast-operator")
        text = cluster("many", None, groups=[("node", 1000, 1)]).replace("        containers:", "        nodeSelector: {there: is-none}\n        containers:")
        began = time.time()
        kube.apply(text, namespace)
        seen = set()

        def all_there():
            status = (kube.get("vcl", "many", namespace) or {}).get("status", {})
            seen.add(status.get("replicas"))
            return status.get("replicas") == 1000

        kube.wait("1,000 pods", all_there, 120, every=0.3)
        last, count = audit_of_pods(namespace)
        writes = [w for w in kube.writes(began) if f" {namespace}/" in w]
        memory = max(int(line.split()[1]) for p in pids for line in read(f"/proc/{p}/status").splitlines() if line.startswith("VmHWM"))
        # A second cluster does not wait for the first.
        kube.apply(cluster("second", SHORT_RING), namespace)
        complete(kube, "second", namespace, timeout=60)
        kube.kubectl("-n", namespace, "delete", "vcl", "many", "--timeout=120s", timeout=150)
        kube.wait("the pods are gone", lambda: not kube.pods(namespace, "gridcast.io/cluster=many"), 120)
        notes = [
            f"{count} pods made in {last - began:.1f} s ({'7 asked for' if last - began <= 7 else 'NOT the 7 asked for'})",
            f"{len(writes)} writes (1,040 asked for), {memory / 1024:.0f} MiB resident at most ({'70 asked for' if memory <= 70 * 1024 else 'NOT the 70 asked for'})",
            f"progress seen in status: {sorted(s for s in seen if s)}",
        ]
        if len(writes) > 1040 or len(seen) < 3 or count != 1000:
            raise Failed("; ".join(notes))
        return notes


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def audit_of_pods(namespace):
    """When the last pod of a namespace was made, and how many were."""
    times = []
    with open(f"{LAB}/log/audit.log", encoding="utf-8") as log:
        for line in log:
            if '"verb":"create"' not in line or f'"namespace":"{namespace}"' not in line:
                continue
            event = json.loads(line)
            if event["objectRef"].get("resource") == "pods" and not event["objectRef"].get("subresource") and event["responseStatus"]["code"] == 201:
                times.append(seconds(event["stageTimestamp"]))
    return max(times), len(times)


def created(name, namespace):
    """When the API server got the cluster, from the audit log."""
    with open(f"{LAB}/log/audit.log", encoding="utf-8") as log:
        for line in log:
            event = json.loads(line)
            reference = event.get("objectRef", {})
            if (reference.get("resource"), reference.get("name"), reference.get("namespace")) == ("virtualclusters", name, namespace):
                return seconds(event["requestReceivedTimestamp"])
    raise Failed(f"{name} is not in the audit log")


def scenario_figures(kube):
    """Apply to first rank, medians of seven, without and with data and measurement; writes of one run."""
    notes = []
    with kube.namespace("figures") as namespace:
        dataset(f"{FOLDERS}/ics")
        kube.volume(namespace, "ics", f"{FOLDERS}/ics")
        plain = "network: {probe: {policy: Never}}"
        whole = "network: {probe: {count: 10}}\n" + data("{persistentVolumeClaim: {claimName: ics}}")
        for series, title, spec, command, limit in (
            ("plain", "without data and measurement", plain, SHORT_RING, 2.5), ("whole", "with 1 MiB of data and probes", whole, RING, 5.5)
        ):
            times, writes, restarts = [], [], 0
            for index in range(7):
                name = f"{series}{index}"
                began = time.time()
                kube.apply(cluster(name, command, spec=spec), namespace)
                found = complete(kube, name, namespace)
                restarts += found["status"]["run"]["restarts"]
                times.append(seconds(found["status"]["timeline"]["firstRank"]) - created(name, namespace))
                time.sleep(2)
                writes.append([w for w in kube.writes(began) if f" {namespace}/" in w])
                kube.kubectl("-n", namespace, "delete", "vcl", name, "--timeout=60s")
                kube.wait("its pods are gone", lambda: not kube.pods(namespace), 60)
            counts = [len(w) for w in writes]
            if restarts:
                raise Failed(f"{title}: {restarts} restarts")
            notes.append(
                f"{title}: first rank after {statistics.median(times):.2f} s ({min(times):.2f} to {max(times):.2f}; {'at most' if statistics.median(times) <= limit else 'NOT the'} {limit} asked for), "
                f"{statistics.median(counts):.0f} writes, {restarts} restarts"
            )
            notes.append(f"the writes: {'; '.join(sorted(' '.join(w.split()[:2]) for w in writes[-1]))}")
    return notes


def scenario_five_minutes_of_silence(kube):
    """Whatever an object has settled in, a running program included: nobody of gridcast writes for five minutes."""
    one = [("node", 1, 1)]
    with kube.namespace("silence") as namespace:
        kube.kubectl("-n", namespace, "create", "configmap", "ics", "--from-literal=a=1")
        kube.apply(cluster("up", None, spec=data("{configMap: {name: ics}}")), namespace)
        kube.apply(cluster("runs", ["sleep", "900"], spec="network: {tcp: {mode: Apply, profile: Staggered}}"), namespace)
        kube.apply(cluster("done", ["true"], groups=one), namespace)
        kube.apply(cluster("failed", ["false"], groups=one), namespace)
        kube.apply(cluster("invalid", ["true"], groups=one, spec="scheduling: {queueName: astro}"), namespace)
        kube.apply(cluster("rests", ["sleep", "900"], groups=one), namespace)
        kube.apply(STANDING, namespace)
        running(kube, "rests", namespace)
        kube.kubectl("-n", namespace, "patch", "vcl", "rests", "--type=merge", "-p", '{"spec":{"suspend":true}}')
        kube.wait_condition("vcl", "rests", namespace, "Suspended")
        kube.wait_condition("vcl", "failed", namespace, "Failed")
        kube.wait_condition("vcl", "invalid", namespace, "Stalled", reason="Unsupported")
        for kind, name in (("vcl", "up"), ("bc", "weights"), ("nmap", "rack")):
            kube.wait_condition(kind, name, namespace, "Ready")
        complete(kube, "done", namespace)
        running(kube, "runs", namespace)
        time.sleep(20)
        began = time.time()
        time.sleep(300)
        writes = kube.writes(began)
        if writes:
            raise Failed(f"{len(writes)} writes in five minutes: {writes[:10]}")
        running(kube, "runs", namespace)
        return ["no create, update, patch or delete in 300 s, leases and reviews aside"]


STANDING = """
apiVersion: gridcast.io/v1alpha1
kind: Broadcast
metadata: {name: weights}
spec: {source: {configMap: {name: ics}}, to: {nodeSelector: {kubernetes.io/os: linux}}}
---
apiVersion: gridcast.io/v1alpha1
kind: NetworkMap
metadata: {name: rack}
spec: {of: {nodeSelector: {kubernetes.io/os: linux}}, intervalSeconds: 86400}
"""
