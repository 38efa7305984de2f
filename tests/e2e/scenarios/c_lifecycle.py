"""Clusters are suspended, resumed, limited, deleted, finished, described."""

import os
import shutil
import time

from broken import image_on_all_nodes, is_staging, noise, slow_links, staged_on
from kubernetes import Failed, cluster
from shared import FOLDERS, RING, alone, complete, data, expect

TOGETHER = True


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


@alone
def scenario_deleted_while_staging(kube):
    with kube.namespace("deleted") as namespace, slow_links(kube, 60):
        noise(f"{FOLDERS}/deleted/block", 100)
        kube.volume(namespace, "large", f"{FOLDERS}/deleted")
        kube.apply(cluster("ring", RING, spec=data("{persistentVolumeClaim: {claimName: large}}")), namespace)
        kube.wait("staging has begun", lambda: is_staging(kube, "ring-ics", namespace), 60, every=0.05)
        kube.kubectl("-n", namespace, "delete", "vcl", "ring", "--timeout=90s", timeout=120)
        kube.wait_gone("bc", "ring-ics", namespace, 60)
        expect("data that is left on nodes", staged_on(kube, namespace), {})
        os.remove(f"{FOLDERS}/deleted/block")


def with_pod(text, lines):
    """A manifest whose pods have further lines before their containers."""
    return text.replace("        containers:", "".join(f"        {line}\n" for line in lines) + "        containers:")


def troubled(kube, name, namespace, message, **options):
    """Told as the reason of Ready within seconds; returns the condition."""
    return kube.wait_condition("vcl", name, namespace, "Ready", "False", message=message, timeout=30, **options)


@alone
def scenario_troubles_are_conditions_and_recover(kube):
    absent, one = "127.0.0.1:1/is-not-there:1", [("node", 1, 1)]
    with kube.namespace("troubles") as namespace:
        begun = time.monotonic()
        kube.apply(cluster("image", ["true"], image=absent, groups=one), namespace)
        troubled(kube, "image", namespace, "is-not-there", reason="ImagePullFailed")
        notes = [f"image pull failure told after {time.monotonic() - begun:.1f} s"]
        with image_on_all_nodes(kube, "registry.example/sl-openmpi:9", absent):
            # kubelet looks again when its back-off is over; meanwhile the others.
            places_and_quotas(kube, namespace)
            what_containers_do(kube, namespace)
            complete(kube, "image", namespace, timeout=120)

        begun = time.monotonic()
        kube.apply(with_pod(cluster("template", ["true"]), ["priorityClassName: there-is-none"]), namespace)
        kube.wait_condition("vcl", "template", namespace, "Stalled", reason="InvalidPodTemplate", timeout=10)
        notes.append(f"invalid template told after {time.monotonic() - begun:.1f} s")
        return notes


def places_and_quotas(kube, namespace):
    one = [("node", 1, 1)]
    kube.apply(cluster("huge", ["true"], groups=one, pod="resources: {requests: {cpu: 99}}"), namespace)
    troubled(kube, "huge", namespace, "[Ii]nsufficient cpu", reason="Unschedulable")
    kube.kubectl("-n", namespace, "delete", "vcl", "huge", "--timeout=60s")
    nodes = kube.nodes()
    try:
        kube.kubectl("cordon", *nodes)
        kube.apply(cluster("place", ["true"], groups=one), namespace)
        troubled(kube, "place", namespace, "unschedulable", reason="Unschedulable")
    finally:
        kube.kubectl("uncordon", *nodes)
    complete(kube, "place", namespace)
    # What is there counts, and one of three more.
    most = len(kube.pods(namespace)) + 1
    quota = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {{name: few}}\nspec: {{hard: {{pods: {}}}}}\n"
    kube.apply(quota.format(most), namespace)
    kube.wait("the quota counts", lambda: kube.get("resourcequota", "few", namespace).get("status", {}).get("used"), 20)
    kube.apply(cluster("quota", ["true"]), namespace)
    troubled(kube, "quota", namespace, "quota", reason="QuotaExceeded")
    kube.apply(quota.format(20), namespace)
    complete(kube, "quota", namespace)
    kube.kubectl("-n", namespace, "delete", "resourcequota", "few")


def what_containers_do(kube, namespace):
    """Init containers that fail until a file is there, or take longer than the cluster has; an image without an MPI."""
    one = [("node", 1, 1)]
    flag = f"{FOLDERS}/flag"
    shutil.rmtree(flag, ignore_errors=True)
    os.makedirs(flag)
    container = "{{name: {}, image: registry.example/busybox:1, command: [sh, -c, \"{}\"]{}}}"
    broken = container.format("broken", "test -e /flag/there", ", volumeMounts: [{name: flag, mountPath: /flag}]")
    slow = container.format("slow", "trap 'exit 1' TERM; sleep 100 & wait", "")
    kube.apply(
        with_pod(cluster("init", ["true"], groups=one), [f"volumes: [{{name: flag, hostPath: {{path: {flag}}}}}]", f"initContainers: [{broken}]"]), namespace
    )
    kube.apply(with_pod(cluster("late", ["true"], spec="scheduling: {timeoutSeconds: 6}"), [f"initContainers: [{slow}]"]), namespace)
    kube.apply(cluster("none", ["true"], image="registry.example/busybox:1"), namespace)
    troubled(kube, "init", namespace, "init-node-0: init container broken ended with code 1", reason="InitFailed")
    with open(f"{flag}/there", "w", encoding="ascii"):
        pass
    troubled(kube, "none", namespace, r"none-node-\d: .*mpirun", reason="NoMpirun")
    kube.wait_condition("vcl", "late", namespace, "Failed", reason="NotReadyInTime", message=r"after 6 s \(scheduling.timeoutSeconds\)", timeout=40)
    complete(kube, "init", namespace)


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
