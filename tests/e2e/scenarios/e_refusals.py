"""What is refused: foreign pods by TLS, manifests by the API server."""

import re

from kubernetes import SYSTEM, Failed, cluster
from shared import data, expect

TOGETHER = True


def scenario_foreign_pods_get_nothing(kube):
    """A pod with the very programs, a key of another cluster, and no key: starter, agent and certificates refuse it."""
    with kube.namespace("victim") as victim, kube.namespace("foreign") as foreign:
        kube.apply(cluster("target", None, groups=[("node", 1, 1)]), victim)
        kube.apply(cluster("other", None, groups=[("node", 1, 1)]), foreign)
        for name, namespace in (("target", victim), ("other", foreign)):
            kube.wait_condition("vcl", name, namespace, "Ready")
        address = kube.get("vcl", "target", victim)["status"]["nodes"][0]["address"]
        # With its own cluster's keys, by the program that the clusters use themselves.
        attempt = (
            f"cp /etc/hosts /tmp/hosts; echo '{address} target-node-0' >> /etc/hosts; "
            "/gridcast/bin/gridcast-starter exec target-node-0 id; echo code $?"
        )
        told = kube.kubectl("-n", victim, "exec", "target-node-0", "-c", "node", "--", "sh", "-c", attempt + " 2>&1")
        if "uid=" not in told or "code 0" not in told:
            raise Failed(f"not even a member is obeyed: {told}")
        told = kube.kubectl("-n", foreign, "exec", "other-node-0", "-c", "node", "--", "sh", "-c", attempt + " 2>&1")
        if "uid=" in told or "code 0" in told or "code " not in told:
            raise Failed(f"the starter of another cluster obeyed: {told}")
        agent = kube.pods(SYSTEM, "app.kubernetes.io/name=gridcast-agent")[0]["status"]["hostIP"]
        for what, host, port in (("starter", address, 7412), ("agent", agent, 7411)):
            probe = (
                f"exec 3<>/dev/tcp/{host}/{port} && printf 'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n' >&3 && timeout 5 cat <&3 | wc -c"
            )
            told = kube.kubectl("-n", foreign, "exec", "other-node-0", "-c", "node", "--", "bash", "-c", probe, check=False)
            # The port is open, and at most a TLS alert comes back.
            if not told.strip() or int(told.strip()) > 64:
                raise Failed(f"the {what} answered without TLS: {told} bytes")
        policy = kube.get("networkpolicy", None, victim)
        expect("network policies of the cluster", len(policy), 1)


SMALL = cluster("ring", ["ring"], groups=[("node", 4, 1)])
BROADCAST = """
apiVersion: gridcast.io/v1alpha1
kind: Broadcast
metadata: {name: weights}
spec:
  source: {http: {url: 'https://example.org/w'}}
  to: {nodes: [a, b]}
"""
MAP = """
apiVersion: gridcast.io/v1alpha1
kind: NetworkMap
metadata: {name: rack}
spec: {of: {nodeSelector: {rack: r1}}}
"""
DATA = cluster("ring", ["ring"], groups=[("node", 4, 1)], spec=data("{configMap: {name: ics}}"))

# manifest, what is replaced, by what, what the message must say: the field and what to do about it
REFUSED = [
    (SMALL, "processes: 4", "processes: 5", r"run.processes.*5 processes on 4 slots"),
    (SMALL, "processes: 4", "processes: 0", r"spec.run.processes.*greater than or equal to 1"),
    (SMALL, "    processes: 4\n", "", r"spec.run.processes.*[Rr]equired"),
    (SMALL, "{name: ring}", "{name: ring.x}", r"'\.' is refused because Open MPI"),
    (SMALL, "{name: ring}", "{name: " + "a" * 49 + "}", r"at most 48 characters, so that suffixes fit, but has 49"),
    (SMALL, "{name: ring}", "{name: 1ring}", r"beginning with a letter"),
    (SMALL, "replicas: 4", "replicas: -1", r"groups\[0\].replicas.*greater than or equal to 0"),
    (SMALL, "replicas: 4", "replicas: 1001", r"groups\[0\].replicas.*less than or equal to 1000"),
    (SMALL, "replicas: 4", "replicas: four", r"groups\[0\].replicas.*integer"),
    (SMALL, "slots: 1", "slots: 0", r"groups\[0\].slots.*greater than or equal to 1"),
    (SMALL, "slots: 1", "slotz: 1", r"unknown field .*slotz"),
    (SMALL, "name: node\n    replicas", "name: No\n    replicas", r"groups\[0\].name"),
    (SMALL, '["ring"]', "[]", r"run.command.*at least 1 items"),
    (SMALL, '["ring"]', "ring", r"run.command.*array"),
    (SMALL, '["ring"]', "['']", r"must begin with the name of a program"),
    (SMALL, "image:", "imagee:", r"unknown field .*imagee"),
    (SMALL, "    pod:\n", "    virtualMachine: {spec: {}}\n    pod:\n", r"exactly one of `pod` and `virtualMachine`"),
    (SMALL, "  run:", "  network: {tcp: {mode: On}}\n  run:", r"tcp.mode.*Unsupported value"),
    (SMALL, "  run:", "  network: {probe: {payloadBytes: 65508}}\n  run:", r"payloadBytes.*less than or equal to 65507"),
    (SMALL, "  run:", "  network: {require: {onViolation: Fail}}\n  run:", r"maxJitterMilliseconds"),
    (SMALL, "  run:", "  activeDeadlineSeconds: 0\n  run:", r"activeDeadlineSeconds.*greater than or equal to 1"),
    (SMALL, "  run:", "  cleanup: Everything\n  run:", r"cleanup.*Unsupported value"),
    (SMALL, "  run:", "  restart: {rules: [{exitCodes: [0], action: Restart}]}\n  run:", r"exitCodes\[0\].*greater than or equal to 1"),
    (SMALL, "  run:", "  replicas: 2\n  run:", r"processes.*must not exceed `replicas` times the slots"),
    (DATA, "mountPath: /data/ics", "mountPath: data/ics", r"mountPath"),
    (DATA, "mountPath: /data/ics", "mountPath: /proc/ics", r"must not be in '/gridcast', '/proc', '/sys' or '/dev'"),
    (DATA, "mountPath: /data/ics", "mountPath: /usr", r"must not hide a directory that the system needs"),
    (DATA, "mountPath: /data/ics", "mountPath: /data/../etc", r"must not contain '.' or '..' as a part"),
    (DATA, "{configMap: {name: ics}}", "{configMap: {name: ics}, secret: {secretName: a}}", r"exactly one of `node`"),
    (BROADCAST, "{nodes: [a, b]}", "{}", r"exactly one of `nodes`, `nodeSelector` and `virtualCluster`"),
    (BROADCAST, "https://example.org/w", "ftp://example.org/w", r"source.http.url"),
    (BROADCAST, "https://example.org/w", "https://me:secret@example.org/w", r"source.http.url"),
    (BROADCAST, "  to:", "  path: ../../etc\n  to:", r"must not contain '.' or '..' as a part"),
    (MAP, "nodeSelector: {rack: r1}", "nodes: [a], nodeSelector: {rack: r1}", r"exactly one of `nodes`"),
    (MAP, "spec: {", "spec: {intervalSeconds: 5, ", r"intervalSeconds.*greater than or equal to 60"),
]


def scenario_manifests_that_the_api_server_refuses(kube):
    with kube.namespace("refused") as namespace:
        problems = []
        for text in (SMALL, DATA, BROADCAST, MAP):
            done = kube.run("kubectl", "-n", namespace, "apply", "--dry-run=server", "-f", "-", stdin=text, check=False)
            if done.returncode != 0:
                problems.append(f"the original is refused: {done.stderr}")
        for text, old, new, message in REFUSED:
            if old not in text:
                problems.append(f"{old!r} is not in the manifest")
                continue
            done = kube.run(
                "kubectl", "-n", namespace, "apply", "--dry-run=server", "-f", "-", stdin=text.replace(old, new, 1), check=False
            )
            if done.returncode == 0:
                problems.append(f"accepted: {new!r}")
            elif not re.search(message, done.stderr, re.DOTALL):
                problems.append(f"{new!r}: not {message!r} but: {done.stderr.strip()}")
        # What a running cluster may not change.
        kube.apply(cluster("fixed", ["sh", "-c", "sleep 60"], groups=[("node", 1, 1)]), namespace)
        for patch, message in (
            ('{"spec":{"run":{"command":["other"]}}}', "run may not change except while `suspend` is true"),
            ('{"spec":{"replicas":3}}', "may not change except while `suspend` is true"),
        ):
            done = kube.run("kubectl", "-n", namespace, "patch", "vcl", "fixed", "--type=merge", "-p", patch, check=False)
            if done.returncode == 0 or message not in done.stderr:
                problems.append(f"patch {patch}: {done.stderr.strip() or 'accepted'}")
        if problems:
            raise Failed("\n".join(problems))
        return [f"{len(REFUSED) + 2} manifests refused"]
