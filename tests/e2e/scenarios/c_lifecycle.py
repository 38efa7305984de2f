"""Clusters are suspended, resumed, limited, deleted, finished, described."""

import time

from kubernetes import Failed, cluster
from shared import RING, complete, data, expect


def pods(kube, name, namespace):
    return [p for p in kube.pods(namespace, f"gridcast.io/cluster={name}") if "deletionTimestamp" not in p["metadata"]]


def scenario_suspend_and_resume_with_a_changed_image(kube):
    with kube.namespace("suspend") as namespace:
        kube.apply(cluster("ring", ["sh", "-c", "sleep 60"]), namespace)
        kube.wait_condition("vcl", "ring", namespace, "Running")
        kube.kubectl("-n", namespace, "patch", "vcl", "ring", "--type=merge", "-p", '{"spec":{"suspend":true}}')
        kube.wait_condition("vcl", "ring", namespace, "Suspended")
        kube.wait("no pods", lambda: not pods(kube, "ring", namespace), 30)
        if kube.condition("vcl", "ring", namespace, "Ready"):
            raise Failed("a suspended cluster has a condition Ready: kstatus would wait for ever")
        text = cluster("ring", ["examples/ring/ring", "-n", "10", "-m", "4096"], image="registry.example/sl-mpich:9", implementation="MPICH", spec="suspend: false")
        kube.apply(text, namespace)
        complete(kube, "ring", namespace)


def scenario_deadline(kube):
    with kube.namespace("deadline") as namespace:
        kube.apply(cluster("ring", ["sh", "-c", "echo beginning; sleep 60"], spec="activeDeadlineSeconds: 8"), namespace)
        kube.wait_condition("vcl", "ring", namespace, "Failed", reason="DeadlineExceeded", timeout=30)
        found = kube.get("vcl", "ring", namespace)["status"]
        if "completionTime" not in found or "beginning" not in found["run"].get("logTail", ""):
            raise Failed(f"no completion time, or the log is lost: {found}")
        kube.wait("pods are gone", lambda: not [p for p in pods(kube, "ring", namespace) if p["status"]["phase"] == "Running"], 30)


def scenario_made_again_under_the_same_name(kube):
    """What the first one leaves to the garbage collector is not taken for the second one's."""
    with kube.namespace("again") as namespace:
        for _ in range(3):
            kube.apply(cluster("ring", ["examples/ring/ring", "-n", "10", "-m", "4096"]), namespace)
            complete(kube, "ring", namespace)
            kube.kubectl("-n", namespace, "delete", "vcl", "ring", "--timeout=60s")


def scenario_exit_codes_have_rules_and_logs_are_kept(kube):
    with kube.namespace("rules") as namespace:
        rules = "restart: {maxRestarts: 1, rules: [{exitCodes: [42], action: Restart}, {exitCodes: [43], action: Fail}]}"
        for code, restarts, reason in ((42, 1, "RestartBudgetExceeded"), (43, 0, None)):
            name = f"code{code}"
            kube.apply(cluster(name, ["sh", "-c", f"echo the last word; exit {code}"], groups=[("node", 1, 1)], spec=rules), namespace)
            kube.wait_condition("vcl", name, namespace, "Failed", reason=reason, timeout=60)
            run = kube.get("vcl", name, namespace)["status"]["run"]
            expect(f"restarts and exit code of {name}", (run["restarts"], run["exitCode"]), (restarts, code))
            report = kube.gridcast("report", name, "-n", namespace).stdout
            if "the last word" not in run["logTail"] or "the last word" not in report:
                raise Failed(f"the log is lost: {run} {report}")


def scenario_time_to_live(kube):
    with kube.namespace("ttl") as namespace:
        kube.apply(cluster("ring", ["true"], spec="ttlSecondsAfterFinished: 3\ncleanup: None"), namespace)
        complete(kube, "ring", namespace)
        kube.wait_gone("vcl", "ring", namespace, 30)
        kube.wait("its pods are gone", lambda: not kube.pods(namespace), 60)


def scenario_deleted_while_staging(kube):
    import os

    with kube.namespace("deleted") as namespace:
        path = "/srv/gridcast-e2e/deleted"
        os.makedirs(path, exist_ok=True)
        with open(f"{path}/block", "wb") as file:
            for _ in range(512):
                file.write(os.urandom(1 << 20))
        kube.volume(namespace, "large", path)
        kube.apply(cluster("ring", RING, spec=data("{persistentVolumeClaim: {claimName: large}}")), namespace)
        kube.wait("staging has begun", lambda: (kube.get("bc", "ring-ics", namespace) or {}).get("status", {}).get("sizeBytes"), 60)
        kube.kubectl("-n", namespace, "delete", "vcl", "ring", "--timeout=90s", timeout=120)
        kube.wait_gone("bc", "ring-ics", namespace, 60)
        for node in kube.nodes():
            left = kube.node("exec", node[1:], "sh", "-c", f"ls -A /var/lib/gridcast/data/{namespace} 2>/dev/null || true").stdout
            if left.strip():
                raise Failed(f"{node} keeps {left}")
        os.remove(f"{path}/block")


def scenario_troubles_are_conditions_and_recover(kube):
    with kube.namespace("troubles") as namespace:
        begun = time.monotonic()
        kube.apply(cluster("image", ["true"], image="127.0.0.1:1/is-not-there:1"), namespace)
        kube.wait_condition("vcl", "image", namespace, "Ready", "False", message="is-not-there", timeout=20)
        notes = [f"image pull failure told after {time.monotonic() - begun:.1f} s"]

        kube.apply(cluster("place", ["true"], pod="resources: {requests: {cpu: 99}}"), namespace)
        kube.wait_condition("vcl", "place", namespace, "Ready", "False", message="[Ii]nsufficient cpu", timeout=20)

        kube.apply("apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: few}\nspec: {hard: {pods: 7}}\n", namespace)
        kube.wait("the quota counts", lambda: kube.get("resourcequota", "few", namespace).get("status", {}).get("used"), 20)
        kube.apply(cluster("quota", ["true"]), namespace)
        kube.wait_condition("vcl", "quota", namespace, "Ready", "False", message="quota", timeout=20)
        kube.kubectl("-n", namespace, "delete", "resourcequota", "few")
        complete(kube, "quota", namespace)

        text = cluster("init", ["true"]).replace(
            "        containers:", "        initContainers: [{name: broken, image: registry.example/busybox:1, command: [sh, -c, 'echo broken >&2; exit 3']}]\n        containers:"
        )
        kube.apply(text, namespace)
        kube.wait_condition("vcl", "init", namespace, "Ready", "False", message=r"broken", timeout=30)

        begun = time.monotonic()
        text = cluster("template", ["true"]).replace("        containers:", "        priorityClassName: there-is-none\n        containers:")
        kube.apply(text, namespace)
        kube.wait_condition("vcl", "template", namespace, "Stalled", reason="InvalidPodTemplate", timeout=10)
        notes.append(f"invalid template told after {time.monotonic() - begun:.1f} s")
        return notes


def scenario_a_cluster_without_a_program_is_scaled(kube):
    with kube.namespace("scale") as namespace:
        kube.apply(cluster("nodes", None, groups=[("node", 2, 1)]), namespace)
        kube.wait_condition("vcl", "nodes", namespace, "Ready")
        kube.kubectl("-n", namespace, "scale", "vcl", "nodes", "--replicas=3")
        kube.wait("three are ready", lambda: kube.get("vcl", "nodes", namespace)["status"].get("readyReplicas") == 3, 60)
        kube.wait_condition("vcl", "nodes", namespace, "Ready")
        # People work in it.
        told = kube.kubectl("-n", namespace, "exec", "nodes-node-0", "-c", "node", "--", "sh", "-c", "cat /gridcast/machinefile; getent hosts nodes-node-2")
        for word in ("nodes-node-2 slots=1 max_slots=1", "10.78."):
            if word not in told:
                raise Failed(f"{word!r} is not in {told!r}")
        kube.kubectl("-n", namespace, "scale", "vcl", "nodes", "--replicas=1")
        kube.wait("one is left", lambda: len(pods(kube, "nodes", namespace)) == 1, 60)


def scenario_unsupported_fields_are_named(kube):
    with kube.namespace("unsupported") as namespace:
        cases = {
            "queue": (cluster("queue", ["true"], spec="scheduling: {queueName: astro}"), "scheduling.queueName"),
            "gang": (cluster("gang", ["true"], spec="scheduling: {gang: Volcano}"), "scheduling.gang"),
            "accept": (cluster("accept", ["true"], spec="acceptance: [{type: Stream, minTriadMBps: 1}]"), "acceptance"),
            "s3": (cluster("s3", ["true"], spec=data("{s3: {bucket: weights}}")), "source.s3"),
            "intel": (cluster("intel", ["true"], implementation="IntelMPI"), "run.implementation"),
            "ssh": (cluster("ssh", ["true"], run="remoteShell: SSH"), "run.remoteShell"),
        }
        for name, (text, field) in cases.items():
            kube.apply(text, namespace)
            kube.wait_condition("vcl", name, namespace, "Stalled", reason="Unsupported", message=field.replace("[", r"\["), timeout=10)
        if kube.pods(namespace):
            raise Failed("pods were made for what is unsupported")
