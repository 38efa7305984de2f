"""State tables: in which state a pod can be, and what its cluster says of it. The nodes have no kubelet: the test says how each pod is."""

import contextlib
import datetime
import os
import re
import threading

from kubernetes import LAB, SYSTEM, Failed, cluster
from shared import expect

LONG = True
# Machines that exist for the API server and the scheduler only; no pod of others goes there.
STEADY, LOST = ("machine-1", "machine-2"), "machine-3"
TAINT = "gridcast.test/no-kubelet"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def ready():
    at = now()[:19] + "Z"
    return {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", "lastHeartbeatTime": at, "lastTransitionTime": at}


@contextlib.contextmanager
def machines(api, kube):
    """Nodes whose heartbeat is ours; gives the set of those that have one."""
    alive, end = {*STEADY, LOST}, threading.Event()

    def beat():
        while not end.wait(3):
            for name in sorted(alive):
                api.ask("PATCH", f"{LEASES}/{name}", {"spec": {"renewTime": now()}}, "application/merge-patch+json")

    beating = threading.Thread(target=beat, daemon=True)
    room = {"cpu": "64", "memory": "64Gi", "pods": "500"}
    try:
        for name in (*STEADY, LOST):
            lease = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now()}
            api.must("POST", LEASES, {"metadata": {"name": name}, "spec": lease})
            api.must("POST", "/api/v1/nodes", {
                "metadata": {"name": name, "labels": {"machine": "lost" if name == LOST else "steady", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
                "spec": {"taints": [{"key": TAINT, "effect": "NoSchedule"}]},
                "status": {"capacity": room, "allocatable": room, "conditions": [ready()]},
            })
        beating.start()
        yield alive
    finally:
        end.set()
        for name in (*STEADY, LOST):
            api.ask("DELETE", f"/api/v1/nodes/{name}")
            api.ask("DELETE", f"{LEASES}/{name}")
        # No kubelet says that these have ended.
        for pod in kube.pods(SYSTEM):
            if pod["spec"].get("nodeName") in (*STEADY, LOST):
                api.ask("DELETE", f"/api/v1/namespaces/{SYSTEM}/pods/{pod['metadata']['name']}?gracePeriodSeconds=0")


SCHEDULED = {"type": "PodScheduled", "status": "True"}
STARTABLE = {"type": "PodReadyToStartContainers", "status": "True"}


def container(state, name="node"):
    return {"name": name, "image": "registry.example/x:1", "imageID": "", "ready": False, "restartCount": 0, "state": state}


def waits(reason, message=""):
    return {"phase": "Pending", "conditions": [SCHEDULED, STARTABLE], "containerStatuses": [container({"waiting": {"reason": reason, "message": message}})]}


def ended(**how):
    return {"phase": "Failed", "conditions": [SCHEDULED, STARTABLE], "containerStatuses": [container({"terminated": how})]}


def runs(address):
    running = {"running": {"startedAt": now()[:19] + "Z"}}
    return {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": [SCHEDULED, STARTABLE], "containerStatuses": [{**container(running), "ready": True}]}


FINE = waits("ContainerCreating")
INIT = {"phase": "Failed", "conditions": [SCHEDULED, STARTABLE], "initContainerStatuses": [container({"terminated": {"exitCode": 3, "reason": "Error", "message": "no licence server"}}, "prepare")]}
PULL = "rpc error: code = NotFound desc = registry.example/x:1: not found"
EVICTED = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory.", "conditions": [SCHEDULED]}


def preempted():
    """Just now: the API server's controllers take an old one back."""
    message = "preempted to make room for a pod of higher priority"
    return {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": message, "lastTransitionTime": now()[:19] + "Z"}



# state: what the members' pods say (none: what nobody says anything about), reason and message of Provisioned and Ready
TABLE = {
    "pull": (waits("ErrImagePull", PULL), "ImagePullFailed", r"^pull-node-0: image registry.example/x:1 of container node cannot be pulled: .*not found; and 1 more node$"),
    "backoff": (waits("ImagePullBackOff", f'Back-off pulling image "registry.example/x:1": ErrImagePull: {PULL}'), "ImagePullFailed", r"^backoff-node-0: image .* cannot be pulled: rpc error.*not found; and 1 more node$"),
    "never": (waits("ErrImageNeverPull", "image is not present with pull policy of Never"), "ImagePullFailed", r"not present with pull policy of Never"),
    "config": (waits("CreateContainerConfigError", 'configmap "settings" not found'), "CreateContainerConfigError", r'^config-node-0: container node cannot be started: configmap "settings" not found; and 1 more node$'),
    "volumes": (None, "VolumesPending", r"volumes-node-0: kubelet waits for a volume or the network of the pod; `kubectl describe pod volumes-node-0` says which"),
    "preempted": (FINE, "PreemptionByScheduler", r"preempted-node-0: preempted to make room"),
    "init": (INIT, "InitFailed", r"init-node-0: init container prepare ended with code 3: no licence server"),
    "evicted": (EVICTED, "Evicted", r"evicted-node-0: The node was low on resource: memory"),
    "memory": (ended(exitCode=137, reason="OOMKilled"), "OutOfMemory", r"memory-node-0: container node was killed: it took more memory than its limit"),
    "ended": (ended(exitCode=127, reason="Error"), "NodeEnded", r"ended-node-0: container node, the node, ended with code 127"),
    "start": (ended(exitCode=128, reason="StartError", message="exec: no such file or directory"), "NodeEnded", r"start-node-0: .*code 128 \(StartError\): exec: no such file"),
}
# Pods that have ended are made again; the others recover.
REPLACED = ("init", "evicted", "memory", "ended", "start")


def scenario_states_of_pods(kube):
    with kube.api() as api, machines(api, kube) as alive, kube.namespace("states") as namespace:
        states = States(kube, api, namespace)
        try:
            for name in TABLE:
                states.make(name, "{machine: steady}", init=name == "init")
            states.make("place", "{machine: steady, rack: there-is-none}")
            states.make("deleted", "{machine: steady}")
            states.make("silent", "{machine: steady}", spec="scheduling: {timeoutSeconds: 25}")
            states.make("lost", "{machine: lost}", replicas=1)
            for name in (*TABLE, "deleted", "silent", "lost"):
                states.placed(name)
            begin(states, alive)
            deleted_by_hand(states)
            for name, (_, reason, message) in TABLE.items():
                if name not in REPLACED:
                    states.expect(name, reason, message)
            pull_is_told_once(states)
            place_recovers(states)
            silence_is_told_and_ends(states)
            recover(states)
            replaced_without_kubelet(states)
            node_lost(states, alive)
        finally:
            states.remove()
        return [f"{len(TABLE) + 4} states; what kubectl describe says at each is in log/describe-*.txt"]


def begin(states, alive):
    """Everything at once: most of the time is waiting."""
    alive.discard(LOST)
    states.set("lost", runs("10.77.0.203"))
    states.set("deleted", FINE)
    states.set("silent", runs("10.77.0.201"))
    for name, (status, _, _) in TABLE.items():
        if status and name not in REPLACED:
            more = {"conditions": [*status["conditions"], preempted()]} if name == "preempted" else {}
            states.set(name, {**status, **more})
    # One of two: the other is as it should be. What has ended is replaced soon, and then something else is in the way.
    for name in REPLACED:
        states.set(name, FINE, index=1)
        states.set(name, TABLE[name][0], index=0)
        states.expect(name, *TABLE[name][1:])


def pull_is_told_once(states):
    """kubelet says now this, now that of one failed pull: no write of ours for it."""
    before = states.get("pull")["metadata"]["resourceVersion"]
    for reason, message in (("ImagePullBackOff", f'Back-off pulling image "registry.example/x:1": ErrImagePull: {PULL}'), ("ErrImagePull", PULL)):
        states.set("pull", waits(reason, message))
        # As long as progress may be held back for.
        threading.Event().wait(3)
    expect("resource version over retried pulls", states.get("pull")["metadata"]["resourceVersion"], before)


def place_recovers(states):
    states.expect("place", "Unschedulable", r"place-node-0: 0/\d+ nodes are available.*; and 1 more node$")
    for name in STEADY:
        states.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {"rack": "there-is-none"}}})
    states.placed("place")
    states.set("place", FINE)
    states.expect("place", "Provisioning", r"^0 of 2 nodes run$")


def silence_is_told_and_ends(states):
    states.expect("silent", "NoStarter", r"silent-node-\d: its starter does not answer", also=("NotReadyInTime",))
    found = states.wait("silent", lambda found: states.condition(found, "Failed", "True"))
    failed = states.condition(found, "Failed", "True")
    expect("reason", failed["reason"], "NotReadyInTime")
    if not re.search(r"after 25 s \(scheduling.timeoutSeconds\).*NoStarter: silent-node-\d", failed["message"]):
        raise Failed(f"the end names neither host nor cause: {failed['message']}")
    expect("kstatus of what has failed", kstatus(found), "Failed")


def recover(states):
    """The cause goes, and with it the word of it; what has ended is another pod, in the same place."""
    for name in TABLE:
        if name in REPLACED:
            states.wait_other(name, 0)
        states.set(name, runs("10.77.0.202") if name in REPLACED else FINE)
    for name in TABLE:
        states.expect(name, None, r"^(0 of 2 nodes run$|2 of 2 nodes run, 0 answer$|.*does not answer)", but=TABLE[name][1])


def deleted_by_hand(states):
    """No kubelet removes it: that is told, and after half a minute it is no longer waited for."""
    states.api.must("DELETE", f"{states.pods}/deleted-node-1?gracePeriodSeconds=1")
    states.expect("deleted", "NodeLeaving", r"deleted-node-1: its pod should be gone, but kubelet has not removed it yet")


def replaced_without_kubelet(states):
    states.wait_other("deleted", 1)
    states.set("deleted", FINE)
    states.expect("deleted", "Provisioning", r"0 of 2 nodes run")


def node_lost(states, alive):
    states.expect("lost", "Unschedulable", r"lost-node-0: 0/\d+ nodes are available: .*untolerated taint")
    alive.add(LOST)
    # As its kubelet would say.
    states.api.patch(f"/api/v1/nodes/{LOST}/status", {"status": {"conditions": [ready()]}})
    states.placed("lost")
    states.set("lost", FINE)
    states.expect("lost", "Provisioning", r"0 of 1 node run")


class States:
    """Clusters by the state that they are for."""

    def __init__(self, kube, api, namespace):
        self.kube, self.api, self.namespace, self.seen, self.replicas = kube, api, namespace, {}, {}
        self.pods = f"/api/v1/namespaces/{namespace}/pods"
        self.clusters = f"/apis/gridcast.io/v1alpha1/namespaces/{namespace}/virtualclusters"

    def make(self, name, selector, replicas=2, init=False, spec=""):
        place = f"        nodeSelector: {selector}\n        tolerations: [{{key: {TAINT}, operator: Exists}}]\n        terminationGracePeriodSeconds: 1\n"
        init = "        initContainers: [{name: prepare, image: registry.example/x:1}]\n" if init else ""
        text = cluster(name, ["true"], image="registry.example/x:1", groups=[("node", replicas, 1)], spec=f"network: {{probe: {{policy: Never}}}}\n{spec}")
        self.api.must("POST", self.clusters, text.replace("        containers:", f"{place}{init}        containers:"), "application/yaml")
        self.replicas[name] = replicas

    def get(self, name):
        return self.api.must("GET", f"{self.clusters}/{name}")

    def pod(self, name, index):
        code, pod = self.api.ask("GET", f"{self.pods}/{name}-node-{index}")
        return pod if code == 200 and "deletionTimestamp" not in pod["metadata"] else None

    def placed(self, name):
        for index in range(self.replicas[name]):
            pod = self.kube.wait(f"{name}-node-{index} has a place", lambda: (lambda pod: pod and pod["spec"].get("nodeName") and pod)(self.pod(name, index)), 120, every=0.5)
            self.seen[name, index] = pod["metadata"]["uid"]

    def set(self, name, status, index=None):
        for number in range(self.replicas[name]) if index is None else [index]:
            self.api.patch(f"{self.pods}/{name}-node-{number}/status", {"status": status})

    def wait_other(self, name, index):
        """Until another pod of this name has a place."""
        other = lambda pod: pod and pod["metadata"]["uid"] != self.seen[name, index] and pod["spec"].get("nodeName")
        self.kube.wait(f"{name}-node-{index} is another pod", lambda: other(self.pod(name, index)), 150, every=0.5)
        self.placed(name)

    def wait(self, name, look, timeout=120):
        last = {}

        def once():
            last.update(self.get(name))
            return look(last)

        try:
            self.kube.wait(name, once, timeout, every=0.3)
        except Failed as failed:
            told = "; ".join(f"{c['type']}={c['status']} {c['reason']}: {c['message']}" for c in last.get("status", {}).get("conditions", []))
            raise Failed(f"{failed}; conditions: {told}") from None
        return last

    @staticmethod
    def condition(found, type_, status):
        conditions = found.get("status", {}).get("conditions", [])
        return next((c for c in conditions if (c["type"], c["status"]) == (type_, status)), None)

    def expect(self, name, reason, message, but=None, also=()):
        """Provisioned and Ready say it, as kstatus understands it; `also`: what may have come meanwhile."""

        def look(found):
            ready, provisioned = self.condition(found, "Ready", "False"), self.condition(found, "Provisioned", "False")
            if not ready or not provisioned or ready["reason"] == but:
                return None
            if ready["reason"] in also and ready["reason"] == "NotReadyInTime":
                return found
            return reason in (None, ready["reason"]) and re.search(message, ready["message"]) and found

        found = self.wait(name, look)
        ready = self.condition(found, "Ready", "False")
        if ready["reason"] in also:
            return
        consistent(name, found)
        expect(f"kstatus of {name}", kstatus(found), "InProgress")
        expect(f"Provisioned of {name}", self.condition(found, "Provisioned", "False")["reason"], ready["reason"])
        if reason and reason != "Provisioning":
            self.told_as_event(name, reason)
        self.write_down(name, ready["reason"])

    def told_as_event(self, name, reason):
        """Once, though it lasts."""
        path = f"/api/v1/namespaces/{self.namespace}/events?fieldSelector=involvedObject.name={name},reason={reason}"
        found = self.kube.wait(f"event {reason} of {name}", lambda: self.api.must("GET", path)["items"], 20, every=0.5)
        if len(found) != 1 or found[0].get("count", 1) != 1 or found[0]["type"] != "Warning":
            raise Failed(f"{name}: events {[(e['type'], e.get('count'), e['message']) for e in found]}")

    def write_down(self, name, reason):
        with open(os.path.join(LAB, f"log/describe-{name}-{reason}.txt"), "w", encoding="utf-8") as file:
            file.write(self.kube.kubectl("-n", self.namespace, "describe", "vcl", name))

    def remove(self):
        """Without kubelets nobody else removes what has a place."""
        for name in self.replicas:
            self.api.ask("DELETE", f"{self.clusters}/{name}")
        gone = lambda: not self.api.must("GET", self.clusters)["items"]
        self.kube.wait("the clusters are gone", gone, 90, every=0.5)
        for pod in self.api.must("GET", self.pods)["items"]:
            self.api.ask("DELETE", f"{self.pods}/{pod['metadata']['name']}?gracePeriodSeconds=0")


def kstatus(found):
    """As kpt, Flux and Argo CD compute it."""
    status = found.get("status", {})
    conditions = {c["type"]: c["status"] for c in status.get("conditions", [])}
    if "deletionTimestamp" in found["metadata"]:
        return "Terminating"
    if status.get("observedGeneration", found["metadata"]["generation"]) != found["metadata"]["generation"]:
        return "InProgress"
    if conditions.get("Reconciling") == "True":
        return "InProgress"
    if conditions.get("Stalled") == "True":
        return "Failed"
    return "InProgress" if conditions.get("Ready", "True") != "True" else "Current"


def consistent(name, found):
    status = found["status"]
    conditions = {c["type"]: c for c in status["conditions"]}
    expect(f"observedGeneration of {name}", status["observedGeneration"], found["metadata"]["generation"])
    for condition in status["conditions"]:
        expect(f"observedGeneration of {name}'s {condition['type']}", condition["observedGeneration"], found["metadata"]["generation"])
        if not condition["message"] or len(condition["message"]) > 1024:
            raise Failed(f"{name}: {condition['type']} has a message of {len(condition['message'])} characters")
    if "Reconciling" in conditions and "Stalled" in conditions:
        raise Failed(f"{name} is both on its way and stalled")
    for type_ in ("Reconciling", "Stalled"):
        if type_ in conditions:
            expect(f"{type_} of {name}", [conditions[type_][k] for k in ("status", "reason", "message")], ["True", conditions["Ready"]["reason"], conditions["Ready"]["message"]])
