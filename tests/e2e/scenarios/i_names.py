"""Names that others have taken, and fields that others write: nobody's object is touched, and there is no fight."""

import json
import time

from b_faults import kill_operator
from kubernetes import Failed, cluster
from shared import RING, complete, data, expect

LONG = True
PROGRAM = ["sh", "-c", "sleep 8"]
UNMEASURED = "network: {probe: {policy: Never}}\n"
RULES = {"spec": {"podSelector": {"matchLabels": {"app": "mine"}}}}
BUDGET = {"spec": {"selector": {"matchLabels": {"app": "mine"}}, "maxUnavailable": 1}}
# cluster: kind and name of what its user has there already, and what is in it
TAKEN = {
    "service": ("v1", "Service", "service", {"spec": {"selector": {"app": "mine"}, "ports": [{"port": 80}]}}),
    "policy": ("networking.k8s.io/v1", "NetworkPolicy", "policy", RULES),
    "record": ("v1", "ConfigMap", "record-machinefile", {"data": {"machinefile": "mine"}}),
    "map": ("gridcast.io/v1alpha1", "NetworkMap", "map", {"spec": {"of": {"nodes": ["n1", "n2"]}}}),
    "data": ("gridcast.io/v1alpha1", "Broadcast", "data-ics", {"spec": {"source": {"configMap": {"name": "mine"}}, "to": {"nodes": ["n1"]}}}),
}


def put(kube, namespace, version, kind, name, content):
    text = json.dumps({"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": {"app": "mine"}}, **content})
    kube.run("kubectl", "-n", namespace, "create", "-f", "-", stdin=text)


def state(kube, kind, name, namespace):
    """All of it, managed fields and resource version as well; of what the operator answers for what the user wrote."""
    words = ["-n", namespace, "get", kind, name, "-o", "json", "--show-managed-fields"]
    found = json.loads(kube.kubectl(*words))
    if kind not in ("Broadcast", "NetworkMap"):
        return found
    return {key: found["metadata"].get(key) for key in ("uid", "labels", "ownerReferences", "generation")} | {"spec": found["spec"]}


def scenario_names_that_are_taken(kube):
    with kube.namespace("names") as namespace:
        for name in ("ics", "mine"):
            kube.kubectl("-n", namespace, "create", "configmap", name, "--from-literal=a=1")
        for version, kind, name, content in TAKEN.values():
            put(kube, namespace, version, kind, name, content)
        before = {name: state(kube, kind, object_, namespace) for name, (_, kind, object_, _) in TAKEN.items()}
        # One after the other would take minutes.
        for name in TAKEN:
            spec = data("{configMap: {name: ics}}") if name == "data" else "" if name == "map" else UNMEASURED
            kube.apply(cluster(name, RING if name == "data" else PROGRAM, groups=[("node", 2, 1)], spec=spec), namespace)
        for name, (_, kind, object_, _) in TAKEN.items():
            message = rf'{kind} "{object_}" exists and does not belong to .*{name}; delete or rename it'
            kube.wait_condition("vcl", name, namespace, "Ready", "False", reason="NameTaken", message=message, timeout=60)
            expect(f"the user's {kind}", state(kube, kind, object_, namespace), before[name])
        # A cluster that goes leaves it, too.
        kube.kubectl("-n", namespace, "delete", "vcl", "service", "--timeout=60s")
        time.sleep(5)
        expect("the user's Service after its cluster has gone", state(kube, "Service", "service", namespace), before["service"])
        kube.apply(cluster("service", PROGRAM, groups=[("node", 2, 1)], spec=UNMEASURED), namespace)
        for _, kind, object_, _ in TAKEN.values():
            kube.kubectl("-n", namespace, "delete", kind, object_, "--timeout=60s")
        for name, (_, kind, object_, _) in TAKEN.items():
            complete(kube, name, namespace, timeout=120)
            expect(f"owner of the {kind}", json.loads(kube.kubectl("-n", namespace, "get", kind, object_, "-o", "json"))["metadata"]["ownerReferences"][0]["name"], name)


def scenario_a_disruption_budget_of_somebody_else(kube):
    """The program runs without ours, and theirs is there when it has ended and when the cluster has gone."""
    with kube.namespace("budget") as namespace:
        put(kube, namespace, "policy/v1", "PodDisruptionBudget", "ring", BUDGET)
        settled = lambda: kube.get("poddisruptionbudget", "ring", namespace).get("status", {}).get("observedGeneration")
        kube.wait("the API server's controller has looked at it", settled, 30)
        before = state(kube, "PodDisruptionBudget", "ring", namespace)
        kube.apply(cluster("ring", PROGRAM, spec=UNMEASURED), namespace)
        complete(kube, "ring", namespace)
        expect("theirs after the run", state(kube, "PodDisruptionBudget", "ring", namespace), before)
        told = [e["message"] for e in kube.get("events", namespace=namespace) if e["involvedObject"]["kind"] == "VirtualCluster" and e["reason"] == "NameTaken"]
        kube.kubectl("-n", namespace, "delete", "vcl", "ring", "--timeout=60s")
        time.sleep(5)
        expect("theirs after the cluster", state(kube, "PodDisruptionBudget", "ring", namespace), before)
        if not any('PodDisruptionBudget "ring" exists and does not belong to' in message for message in told):
            raise Failed(f"that the program runs without a budget is not told: {told}")


def scenario_fields_that_another_manager_writes(kube):
    """Ours are ours again when they are applied again; what is only theirs stays theirs. Nobody writes in turns."""
    with kube.namespace("fields") as namespace:
        kube.apply(cluster("ring", None, groups=[("node", 1, 1)], spec=UNMEASURED), namespace)
        kube.wait_condition("vcl", "ring", namespace, "Ready")
        theirs = """
apiVersion: v1
kind: Service
metadata: {name: ring, labels: {theirs: "yes"}}
spec: {publishNotReadyAddresses: false, sessionAffinity: ClientIP}
"""
        kube.run("kubectl", "-n", namespace, "apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", "-", stdin=theirs)
        service = lambda: kube.get("service", "ring", namespace)
        expect("as the other wants it", service()["spec"].get("publishNotReadyAddresses", False), False)
        kill_operator(kube)()
        kube.wait("the operator has applied it", lambda: service()["spec"].get("publishNotReadyAddresses"), 60, every=1)
        found = service()
        expect("what is the other's alone", (found["metadata"]["labels"].get("theirs"), found["spec"]["sessionAffinity"]), ("yes", "ClientIP"))
        kube.wait_condition("vcl", "ring", namespace, "Ready")
        time.sleep(10)
        expect("resource version ten seconds later", service()["metadata"]["resourceVersion"], found["metadata"]["resourceVersion"])
        expect("status", kube.condition("vcl", "ring", namespace, "Ready")["status"], "True")
        # Both are gone with the cluster: an object has one owner, whoever writes into it.
        kube.kubectl("-n", namespace, "delete", "vcl", "ring", "--timeout=60s")
        kube.wait_gone("service", "ring", namespace)


def scenario_a_pod_of_the_name_of_a_member(kube):
    with kube.namespace("member") as namespace:
        theirs = """
apiVersion: v1
kind: Pod
metadata: {name: ring-node-1}
spec: {terminationGracePeriodSeconds: 0, containers: [{name: user, image: "registry.example/busybox:1", command: [sleep, "1000"]}]}
"""
        kube.apply(theirs, namespace)
        kube.kubectl("-n", namespace, "wait", "--for=condition=Ready", "pod/ring-node-1", "--timeout=60s")
        uid = kube.get("pod", "ring-node-1", namespace)["metadata"]["uid"]
        kube.apply(cluster("ring", PROGRAM, spec=UNMEASURED), namespace)
        kube.wait_condition("vcl", "ring", namespace, "Ready", "False", reason="NameTaken", message="ring-node-1", timeout=60)
        found = kube.get("pod", "ring-node-1", namespace)
        if found["metadata"]["uid"] != uid or "deletionTimestamp" in found["metadata"] or "ownerReferences" in found["metadata"]:
            raise Failed(f"the user's pod is another: {found['metadata']}")
        kube.kubectl("-n", namespace, "delete", "pod", "ring-node-1", "--timeout=60s")
        complete(kube, "ring", namespace)
