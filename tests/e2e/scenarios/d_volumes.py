"""Datasets as volumes: for any pod of the namespace, for nobody else, whatever dies meanwhile."""

import os

from kubernetes import SYSTEM, Failed
from shared import FOLDERS, dataset, expect

BROADCAST = """
apiVersion: gridcast.io/v1alpha1
kind: Broadcast
metadata: {{name: {name}}}
spec:
  source: {source}
  to: {to}
  retain: {retain}
"""

POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  nodeName: {node}
  terminationGracePeriodSeconds: 0
  restartPolicy: Never
  containers:
  - name: user
    image: registry.example/busybox:1
    command: [sh, -c, "{command}"]
    volumeMounts: [{{name: data, mountPath: /data{sub}}}]
  volumes:
  - name: data
    csi: {{driver: csi.gridcast.io, readOnly: true, volumeAttributes: {{broadcast: {broadcast}}}}}
"""


def broadcast(name, source="{configMap: {name: ics}}", to="{nodes: [n1, n2, n3]}", retain="Delete"):
    return BROADCAST.format(name=name, source=source, to=to, retain=retain)


def pod(name, command, node="n2", broadcast="data", sub=""):
    return POD.format(name=name, command=command, node=node, broadcast=broadcast, sub=sub)


def scenario_a_plain_pod_mounts_a_broadcast(kube):
    with kube.namespace("volumes") as namespace:
        kube.kubectl("-n", namespace, "create", "configmap", "ics", "--from-literal=a=first", "--from-literal=b=second")
        # The pod is there first: it waits.
        command = "cat /data/a; touch /data/new 2>&1; ls /data | wc -l; sleep 1000"
        kube.apply(pod("early", command), namespace)
        kube.apply(pod("part", "cat /data; echo; sleep 1000", sub=", subPath: b"), namespace)
        seen = kube.get("pod", "early", namespace)
        expect("phase before there is a broadcast", seen["status"]["phase"], "Pending")
        kube.apply(broadcast("data"), namespace)
        kube.wait_condition("bc", "data", namespace, "Ready")
        for name in ("early", "part"):
            kube.kubectl("-n", namespace, "wait", "--for=condition=Ready", f"pod/{name}", "--timeout=90s")
        told = kube.wait("the pod tells", lambda: (lambda log: log if log.strip()[-1:].isdigit() else None)(kube.kubectl("-n", namespace, "logs", "early")), 20)
        if "first" not in told or "Read-only file system" not in told or told.split()[-1] != "2":
            raise Failed(f"the pod saw: {told}")
        part = kube.wait("the other tells", lambda: kube.kubectl("-n", namespace, "logs", "part").strip(), 20)
        expect("the part by subPath", part, "second")
        # While pods have it, the data stays.
        kube.kubectl("-n", namespace, "delete", "bc", "data", "--wait=false")
        kube.wait("the condition tells that it is mounted", lambda: "mount" in str((kube.get("bc", "data", namespace) or {}).get("status")), 30)
        expect("still there", kube.kubectl("-n", namespace, "exec", "early", "--", "cat", "/data/b").strip(), "second")
        kube.kubectl("-n", namespace, "delete", "pod", "early", "part")
        kube.wait_gone("bc", "data", namespace, 60)
        left = kube.node("exec", 2, "sh", "-c", f"ls -A /var/lib/gridcast/data/{namespace} 2>/dev/null; grep -c csi.gridcast.io /proc/self/mountinfo; true").stdout
        expect("what is left on the node", left.split(), ["0"])


def scenario_volumes_survive_agents_and_helpers(kube):
    from b_faults import kill_container

    with kube.namespace("survive") as namespace:
        kube.kubectl("-n", namespace, "create", "configmap", "ics", "--from-literal=a=first")
        kube.apply(broadcast("data"), namespace)
        kube.apply(pod("before", "sleep 1000"), namespace)
        kube.kubectl("-n", namespace, "wait", "--for=condition=Ready", "pod/before", "--timeout=60s")
        for container in ("agent", "mount-helper"):
            victim = next(p for p in kube.pods(SYSTEM, "app.kubernetes.io/name=gridcast-agent") if p["spec"]["nodeName"] == "n2")
            kill_container(kube, victim, container)
        expect("still mounted", kube.kubectl("-n", namespace, "exec", "before", "--", "cat", "/data/a").strip(), "first")
        kube.apply(pod("after", "sleep 1000"), namespace)
        kube.kubectl("-n", namespace, "wait", "--for=condition=Ready", "pod/after", "--timeout=120s")
        expect("mounted anew", kube.kubectl("-n", namespace, "exec", "after", "--", "cat", "/data/a").strip(), "first")
        expect("the status is as before", kube.condition("bc", "data", namespace, "Ready")["status"], "True")


def scenario_data_that_is_kept(kube):
    with kube.namespace("kept") as namespace:
        dataset(f"{FOLDERS}/kept")
        kube.apply(broadcast("data", source=f"{{node: {{path: {FOLDERS}/kept, name: n1}}}}", to="{nodeSelector: {kubernetes.io/hostname: n3}}", retain="Keep"), namespace)
        kube.wait_condition("bc", "data", namespace, "Ready")
        expect("nodes", kube.get("bc", "data", namespace)["status"]["nodesStaged"], 1)
        kube.kubectl("-n", namespace, "delete", "bc", "data", "--timeout=60s")
        expect("kept", kube.node("exec", 3, "test", "-f", f"/var/lib/gridcast/data/{namespace}/data/large", check=False).returncode, 0)
        kube.node("exec", 3, "rm", "-rf", f"/var/lib/gridcast/data/{namespace}")


def scenario_volumes_of_another_namespace(kube):
    with kube.namespace("mine") as mine, kube.namespace("theirs") as theirs:
        kube.kubectl("-n", theirs, "create", "configmap", "ics", "--from-literal=secret=theirs")
        kube.apply(broadcast("data"), theirs)
        kube.wait_condition("bc", "data", theirs, "Ready")
        # By name only, and by pretending to be in the other namespace.
        kube.apply(pod("thief", "sleep 1000"), mine)
        kube.apply(
            pod("liar", "sleep 1000").replace("broadcast: data", f"broadcast: data, csi.storage.k8s.io/pod.namespace: {theirs}"), mine
        )
        os.sync()
        kube.wait(
            "both are told why",
            lambda: all(
                any(e["reason"] == "FailedMount" and "data" in e["message"] for e in kube.get("events", namespace=mine) if e["involvedObject"]["name"] == name)
                for name in ("thief", "liar")
            ),
            150,
        )
        for name in ("thief", "liar"):
            expect(f"phase of {name}", kube.get("pod", name, mine)["status"]["phase"], "Pending")
        kube.kubectl("-n", mine, "delete", "pod", "thief", "liar", "--force", "--grace-period=0")
