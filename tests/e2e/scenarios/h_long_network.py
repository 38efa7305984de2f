"""The network's long ones: what is demanded of it, settings that are written in pods and put back, launchers that place otherwise."""

import subprocess

from broken import agent_pod, process_id, sysctls
from kubernetes import HERE, SYSTEM, Failed, cluster
from shared import complete, expect, placed

LONG = True
SHORT_RING = ["examples/ring/ring", "-n", "10", "-m", "4096"]
# More than any machine has, Mbit/s.
UNREACHABLE = 10_000_000


def scenario_a_network_below_what_is_required(kube):
    with kube.namespace("require") as namespace:
        for word in ("Warn", "Fail"):
            spec = f"network: {{require: {{minBandwidthMbps: {UNREACHABLE}, onViolation: {word}}}}}"
            kube.apply(cluster(word.lower(), SHORT_RING, spec=spec), namespace)
        told = rf"fail-node-\d to fail-node-\d: [\d.]+ Mbit/s is below minBandwidthMbps {UNREACHABLE}"
        kube.wait_condition("vcl", "fail", namespace, "Failed", reason="NetworkBelowRequirement", message=told, timeout=90)
        status = kube.get("vcl", "fail", namespace)["status"]
        if status.get("run", {}).get("launch") or "launched" in status["timeline"]:
            raise Failed(f"it was launched all the same: {status['timeline']}")
        complete(kube, "warn", namespace)
        told = rf"measured between 3 nodes; warn-node-\d to warn-node-\d: .* is below minBandwidthMbps {UNREACHABLE}"
        kube.wait_condition("vcl", "warn", namespace, "Measured", reason="NetworkBelowRequirement", message=told, timeout=5)
        # What is reached is not spoken of.
        spec = "network: {require: {minBandwidthMbps: 0.001, maxJitterMilliseconds: 60000, onViolation: Fail}}"
        kube.apply(cluster("met", SHORT_RING, spec=spec), namespace)
        complete(kube, "met", namespace)
        kube.wait_condition("vcl", "met", namespace, "Measured", reason="Measured", timeout=5)


def by_host(settings, value):
    hosts = {}
    for setting in settings:
        hosts.setdefault(setting["host"], {})[setting["key"]] = setting[value]
    return hosts


def scenario_settings_are_tried_written_and_put_back(kube):
    """As the pods themselves see them: untouched by a dry run, as wanted while the program runs, as before when it has ended."""
    with kube.namespace("settings") as namespace:
        tcp = "network: {{tcp: {{mode: {}, profile: Staggered}}}}\ncleanup: None"
        kube.apply(cluster("dry", None, spec=tcp.format("DryRun")), namespace)
        kube.wait_condition("vcl", "dry", namespace, "Ready")
        kube.wait_condition("vcl", "dry", namespace, "Tuned", reason="DryRun", message="settings would be changed on 3 nodes")
        settings = kube.get("vcl", "dry", namespace)["status"]["tcp"]
        planned = by_host(settings, "before")
        if sorted(planned) != [f"dry-node-{i}" for i in range(3)] or not all(s["dryRun"] for s in settings):
            raise Failed(f"a dry run told of {settings}")
        for pod, before in planned.items():
            expect(f"settings of {pod} after a dry run", sysctls(kube, pod, namespace, list(before)), before)
        if by_host(settings, "applied") == planned:
            raise Failed(f"a dry run has nothing to tell: {settings}")
        kube.kubectl("-n", namespace, "delete", "vcl", "dry", "--timeout=60s")

        kube.apply(cluster("wet", ["sh", "-c", "sleep 15"], spec=tcp.format("Apply")), namespace)
        kube.wait_condition("vcl", "wet", namespace, "Running")
        settings = kube.get("vcl", "wet", namespace)["status"]["tcp"]
        before, applied = by_host(settings, "before"), by_host(settings, "applied")
        if any(applied[pod] == before[pod] for pod in before):
            raise Failed(f"nothing was changed: {settings}")
        for pod, values in applied.items():
            expect(f"settings of {pod} while it runs", sysctls(kube, pod, namespace, list(values)), values)
        complete(kube, "wet", namespace)
        for pod, values in before.items():
            expect(f"settings of {pod} after the end", sysctls(kube, pod, namespace, list(values)), values)
        settings = kube.get("vcl", "wet", namespace)["status"]["tcp"]
        if not all(setting["restored"] for setting in settings):
            raise Failed(f"status does not say so: {settings}")


# Kills a process as soon as a file holds something. No process is made meanwhile: the shell itself looks.
KILL_AT_NOTE = 'echo ready; while [ ! -s "$1" ]; do :; done; kill -KILL "$2"; echo killed'


def scenario_an_agent_is_killed_while_settings_are_applied(kube):
    """It has noted what it is about to write, and dies: all nodes are tuned all the same, and all is put back."""
    with kube.namespace("tuning") as namespace:
        # Pings for seconds: the watcher is there before anything is written.
        spec = "cleanup: None\nnetwork: {probe: {count: 1000}, tcp: {mode: Apply, profile: Staggered}}"
        kube.apply(cluster("ring", ["sh", "-c", "sleep 20"], spec=spec), namespace)
        kube.wait_condition("vcl", "ring", namespace, "Provisioned")
        member = kube.get("pod", "ring-node-1", namespace)
        node = member["spec"]["nodeName"]
        agent = agent_pod(kube, node)
        journal = f"/var/lib/gridcast/journal/{member['metadata']['uid']}/settings.journal"
        words = [f"{HERE}/lab/node", "exec", node.removeprefix("n"), "sh", "-c", KILL_AT_NOTE, "watch", journal, str(process_id(kube, agent, "agent"))]
        watcher = subprocess.Popen(words, env=kube.environment, stdout=subprocess.PIPE, text=True)
        try:
            expect("the watcher", watcher.stdout.readline().strip(), "ready")
            if (kube.condition("vcl", "ring", namespace, "Tuned") or {}).get("reason") != "Pending":
                raise Failed("it was tuned before the watcher was there")
            expect("the watcher", watcher.communicate(timeout=150)[0].strip(), "killed")
        finally:
            watcher.kill()
        # Another pod at once: kubelet would wait before it starts the same one again, and longer from time to time.
        kube.kubectl("-n", SYSTEM, "delete", "pod", agent["metadata"]["name"], "--grace-period=0", "--force")
        kube.wait_condition("vcl", "ring", namespace, "Tuned", timeout=150)
        kube.wait_condition("vcl", "ring", namespace, "Running", timeout=60)
        settings = kube.get("vcl", "ring", namespace)["status"]["tcp"]
        before, applied = by_host(settings, "before"), by_host(settings, "applied")
        expect("pods", sorted(before), [f"ring-node-{i}" for i in range(3)])
        for pod, values in applied.items():
            expect(f"settings of {pod} while it runs", sysctls(kube, pod, namespace, list(values)), values)
        complete(kube, "ring", namespace, timeout=120)
        # Those of a pod that nobody tuned.
        kube.apply(cluster("fresh", None, groups=[("node", 1, 1)]), namespace)
        kube.wait_condition("vcl", "fresh", namespace, "Ready")
        for pod, values in before.items():
            untouched = sysctls(kube, "fresh-node-0", namespace, list(values))
            expect(f"what status says of {pod} before", values, untouched)
            expect(f"settings of {pod} after the end", sysctls(kube, pod, namespace, list(values)), untouched)
        if not all(setting["restored"] for setting in kube.get("vcl", "ring", namespace)["status"]["tcp"]):
            raise Failed("status does not say that all is restored")


def scenario_ranks_elsewhere_are_told(kube):
    """An image whose launcher has a will of its own: the machinefile backwards."""
    with kube.namespace("misplaced") as namespace:
        kube.apply(
            """
apiVersion: v1
kind: ConfigMap
metadata: {name: wrapper}
data:
  mpirun.openmpi: |
    #!/bin/sh
    tac "$2" > /tmp/backwards
    shift 2
    exec /usr/bin/mpirun.openmpi --hostfile /tmp/backwards "$@"
""",
            namespace,
        )
        pod = "env: [{name: PATH, value: '/wrapper:/usr/bin:/bin'}]\nvolumeMounts: [{name: wrapper, mountPath: /wrapper}]"
        text = cluster("ring", SHORT_RING, pod=pod).replace(
            "        containers:", "        volumes: [{name: wrapper, configMap: {name: wrapper, defaultMode: 493}}]\n        containers:"
        )
        kube.apply(text, namespace)
        # The launcher is on the first node, whatever it is told of the others.
        told = "rank 1 was seen on ring-node-2, the machinefile puts it on ring-node-1"
        kube.wait_condition("vcl", "ring", namespace, "Failed", reason="PlacementMismatch", message=told, timeout=90)
        found = kube.get("vcl", "ring", namespace)
        expect("exit code", found["status"]["run"]["exitCode"], 0)
        expect("placement", placed(found), {"ring-node-0": [0], "ring-node-1": [2], "ring-node-2": [1]})
