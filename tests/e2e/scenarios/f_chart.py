"""The chart: upgraded while something runs, uninstalled without a trace, installed again."""

from kubernetes import SYSTEM, Failed, cluster
from shared import complete, expect


def scenario_upgrade_during_a_run_then_uninstall(kube):
    if not kube.is_installed():
        kube.install()
    with kube.namespace("chart") as namespace:
        kube.apply(cluster("ring", ["sh", "-c", "sleep 25; exec examples/ring/ring -n 10 -m 4096"]), namespace)
        kube.wait_condition("vcl", "ring", namespace, "Running")
        before = {p["metadata"]["name"]: p["metadata"]["uid"] for p in kube.pods(namespace)}
        kube.helm(
            "upgrade", "gridcast", "charts/gridcast", "-n", SYSTEM, "--reuse-values",
            "--set", "operator.podLabels.upgraded=yes", "--set", "agent.podLabels.upgraded=yes", "--set", "agent.maxUnavailable=100%",
        )
        for what in ("deployment/gridcast-operator", "daemonset/gridcast-agent"):
            kube.kubectl("-n", SYSTEM, "rollout", "status", what, "--timeout=120s", timeout=150)
        after = {p["metadata"]["name"]: p["metadata"]["uid"] for p in kube.pods(namespace)}
        expect("pods over the upgrade", after, before)
        expect("restarts", complete(kube, "ring", namespace, 90)["status"]["run"]["restarts"], 0)

        # Uninstalled while a cluster is up: it goes first, in good order.
        kube.kubectl("-n", namespace, "create", "configmap", "ics", "--from-literal=a=1")
        kube.apply(cluster("left", None, spec="data:\n- {name: ics, mountPath: /data/ics, source: {configMap: {name: ics}}}\n"), namespace)
        kube.wait_condition("vcl", "left", namespace, "Ready")
        kube.helm("uninstall", "gridcast", "-n", SYSTEM)
        kube.wait("its pods are gone", lambda: not kube.pods(namespace), 60)
        left = []
        # The API server takes definitions away in its own time.
        kinds = ("crd", "clusterrole", "clusterrolebinding", "csidriver")
        kube.wait(
            "nothing of the whole cluster's is left",
            lambda: not [o for kind in kinds for o in kube.get(kind) if "gridcast" in o["metadata"]["name"]],
            60,
        )
        kube.wait("the system's pods are gone", lambda: not kube.pods(SYSTEM), 60)
        for kind in ("secret", "configmap", "lease", "service", "serviceaccount", "role", "rolebinding", "job"):
            left += [
                f"{kind}/{o['metadata']['name']}" for o in kube.get(kind, namespace=SYSTEM) if o["metadata"]["name"] not in ("kube-root-ca.crt", "default")
            ]
        for node in kube.nodes():
            files = kube.node("exec", node[1:], "sh", "-c", "find /var/lib/gridcast -type f; grep csi.gridcast.io /proc/self/mountinfo; true").stdout
            left += [f"{node}: {line}" for line in files.splitlines()]
        if left:
            raise Failed(f"left after helm uninstall: {left}")
        # Also what comes after an uninstall works.
        kube.install()
        kube.apply(cluster("again", ["true"]), namespace)
        complete(kube, "again", namespace)
