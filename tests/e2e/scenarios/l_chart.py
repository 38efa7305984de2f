"""The chart by its values: who brings the definitions, who keeps them, one namespace, two operators; what stays."""

import contextlib

from kubernetes import SYSTEM, Failed, cluster
from shared import complete, expect

LONG = True
# What the API server and its controllers make and take away by themselves.
OTHERS = {"events", "componentstatuses", "endpoints", "endpointslices", "pods", "controllerrevisions", "replicasets"}
DATA = "data:\n- {name: ics, mountPath: /data/ics, source: {configMap: {name: ics}}}\n"


@contextlib.contextmanager
def without_the_chart(kube):
    """Uninstalled meanwhile; afterwards it is there as all other scenarios want it."""
    if kube.is_installed():
        kube.uninstall()
    no_definitions(kube)
    try:
        yield
    finally:
        if kube.is_installed():
            kube.helm("uninstall", "gridcast", "-n", SYSTEM, "--no-hooks", check=False)
        # Nobody is there any more who would serve finalizers.
        for kind in definitions(kube):
            for line in kube.kubectl("get", kind, "-A", "-o", "custom-columns=:metadata.namespace,:metadata.name", "--no-headers").splitlines():
                namespace, name = line.split()
                kube.kubectl("-n", namespace, "patch", kind, name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        kube.kubectl("delete", "-f", "crds/", "--ignore-not-found", "--wait=false")
        no_definitions(kube)
        kube.install()


def definitions(kube):
    return sorted(o["metadata"]["name"] for o in kube.get("crd") if o["spec"]["group"] == "gridcast.io")


def no_definitions(kube):
    kube.wait("no definitions", lambda: not definitions(kube), 90, every=1)


def inventory(api):
    """Every object of the cluster, as `resource namespace/name`."""
    groups = [("/api/v1", api.must("GET", "/api/v1"))]
    for group in api.must("GET", "/apis")["groups"]:
        path = f"/apis/{group['preferredVersion']['groupVersion']}"
        groups.append((path, api.must("GET", path)))
    found = set()
    for path, group in groups:
        for resource in group["resources"]:
            name = resource["name"]
            if "list" not in resource["verbs"] or "/" in name or name in OTHERS:
                continue
            for item in api.must("GET", f"{path}/{name}").get("items", []):
                meta = item["metadata"]
                found.add(f"{name} {meta.get('namespace', '')}/{meta['name']}")
    return found


def used(kube, namespace, name="ring"):
    """A cluster with data has run."""
    kube.kubectl("-n", namespace, "create", "configmap", "ics", "--from-literal=a=1", check=False)
    kube.apply(cluster(name, ["true"], groups=[("node", 2, 1)], spec=DATA), namespace)
    complete(kube, name, namespace, timeout=120)


def scenario_an_uninstallation_leaves_nothing(kube):
    """Every object of every kind, before the installation and after what came of it has gone."""
    with without_the_chart(kube), kube.api() as api, kube.namespace("leaves") as namespace:
        kube.kubectl("-n", namespace, "create", "configmap", "ics", "--from-literal=a=1")
        before = inventory(api)
        kube.install()
        used(kube, namespace)
        kube.apply(cluster("up", None, groups=[("node", 1, 1)]), namespace)
        kube.wait_condition("vcl", "up", namespace, "Ready")
        kube.uninstall()
        no_definitions(kube)
        grown = lambda: sorted(inventory(api) - before)
        kube.wait("nothing more than before", lambda: not grown() or None, 60, every=2)
        expect("what is missing", sorted(before - inventory(api)), [])
        for node in kube.nodes():
            left = kube.node("exec", node[1:], "sh", "-c", "find /var/lib/gridcast -type f; grep csi.gridcast.io /proc/self/mountinfo; ls -A /var/lib/kubelet/plugins/csi.gridcast.io /var/lib/kubelet/plugins_registry 2>/dev/null | grep csi.gridcast.io-reg; true").stdout
            expect(f"left on {node}", left, "")
        return [f"{len(before)} objects before and after"]


def scenario_definitions_by_kubectl(kube):
    with without_the_chart(kube), kube.namespace("defined") as namespace:
        kube.kubectl("apply", "-f", "crds/")
        served = lambda: [c for o in kube.get("crd") for c in o.get("status", {}).get("conditions") or [] if (c["type"], c["status"]) == ("Established", "True")]
        kube.wait("the definitions are served", lambda: len(served()) == 3, 30)
        kube.install("crds.install=false")
        used(kube, namespace)
        kube.helm("upgrade", "gridcast", "charts/gridcast", "-n", SYSTEM, "--reuse-values", "--set", "operator.podLabels.upgraded=yes")
        kube.wait_rollout()
        expect("definitions", len(definitions(kube)), 3)
        kube.uninstall()
        expect("definitions after the uninstallation", len(definitions(kube)), 3)
        expect("clusters after it", kube.get("vcl", namespace=namespace), [])


def scenario_definitions_that_are_kept(kube):
    with without_the_chart(kube), kube.namespace("keeps") as namespace:
        kube.install("crds.keep=true")
        used(kube, namespace)
        before = kube.get("vcl", "ring", namespace)
        kube.uninstall()
        expect("definitions", len(definitions(kube)), 3)
        after = kube.get("vcl", "ring", namespace)
        expect("the cluster that ran", after["status"], before["status"])
        # Installed again, it is the same cluster, and can go.
        kube.install("crds.keep=true")
        used(kube, namespace, "second")
        expect("restarts of what had ended", kube.get("vcl", "ring", namespace)["status"]["run"]["restarts"], 0)
        kube.kubectl("-n", namespace, "delete", "vcl,bc,nmap", "--all", "--timeout=90s", timeout=120)
        kube.uninstall()
        expect("definitions", len(definitions(kube)), 3)


def scenario_one_namespace_is_watched(kube):
    with without_the_chart(kube), kube.namespace("watched") as watched, kube.namespace("unseen") as unseen:
        kube.install(f"watchNamespace={watched}")
        kube.apply(cluster("ring", ["true"], groups=[("node", 1, 1)]), unseen)
        used(kube, watched)
        found = kube.get("vcl", "ring", unseen)
        if "status" in found or found["metadata"].get("finalizers") or kube.pods(unseen):
            raise Failed(f"the operator looks at another namespace: {found}")
        kube.kubectl("-n", watched, "delete", "vcl", "ring", "--timeout=60s")
        kube.uninstall()
        expect("definitions", len(definitions(kube)), 3)
        after = kube.get("vcl", "ring", unseen)
        expect("a cluster of another namespace", after and after["metadata"]["uid"], found["metadata"]["uid"])
        kube.kubectl("-n", unseen, "delete", "vcl", "ring", "--timeout=30s")


def holder(kube):
    """The pod that leads."""
    lease = next(l for l in kube.get("leases", namespace=SYSTEM) if "operator" in l["metadata"]["name"])
    return lease["spec"].get("holderIdentity") or ""


def scenario_the_leader_of_two_is_killed(kube):
    """Another takes over, the one that waited or the one that comes instead; the program runs on."""
    with kube.namespace("leader") as namespace:
        try:
            kube.helm("upgrade", "gridcast", "charts/gridcast", "-n", SYSTEM, "--reuse-values", "--set", "operator.replicas=2")
            kube.wait_rollout()
            kube.kubectl("-n", namespace, "create", "configmap", "ics", "--from-literal=a=1")
            kube.apply(cluster("ring", ["sh", "-c", "sleep 60; exec examples/ring/ring -n 10 -m 4096"], spec=DATA), namespace)
            kube.wait_condition("vcl", "ring", namespace, "Running", timeout=90)
            before = {p["metadata"]["name"]: p["metadata"]["uid"] for p in kube.pods(namespace)}
            names = [p["metadata"]["name"] for p in kube.pods(SYSTEM, "app.kubernetes.io/name=gridcast-operator")]
            first = next(name for name in names if name in holder(kube))
            kube.kubectl("-n", SYSTEM, "delete", "pod", first, "--grace-period=0", "--force")
            kube.wait("another leads", lambda: (lambda now: now if now and first not in now else None)(holder(kube)), 90, every=0.5)
            # It does the leader's work.
            kube.apply(cluster("next", ["true"], groups=[("node", 2, 1)]), namespace)
            complete(kube, "next", namespace, timeout=90)
            found = complete(kube, "ring", namespace, timeout=150)
            expect("launches", found["status"]["run"]["launch"].partition("-")[0], "1")
            after = {p["metadata"]["name"]: p["metadata"]["uid"] for p in kube.pods(namespace) if p["metadata"]["name"] in before}
            expect("pods over the change", after.items() <= before.items(), True)
        finally:
            kube.helm("upgrade", "gridcast", "charts/gridcast", "-n", SYSTEM, "--reuse-values", "--set", "operator.replicas=1")
            kube.wait_rollout()
