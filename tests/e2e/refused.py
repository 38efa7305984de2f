"""Manifests and changes that the API server refuses, and what it must say: the field and what to do about it."""

from kubernetes import cluster
from shared import data

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
TWO = SMALL.replace("  run:", "  data:\n  - {name: a, mountPath: /data/a, source: {configMap: {name: a}}}\n  - {name: b, mountPath: /data/b, source: {configMap: {name: b}}}\n  run:")
PAIR = cluster("ring", ["ring"], groups=[("thin", 2, 1), ("fat", 1, 2)])
LONG_NAME = SMALL.replace("{name: ring}", "{name: " + "a" * 48 + "}")

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
    (LONG_NAME, "name: node\n    replicas", "name: " + "n" * 13 + "\n    replicas", r"metadata.*must leave room: .*at most 63 characters"),
    (SMALL, "replicas: 4", "replicas: 0", r"must have at least one replica when there is something to run"),
    (PAIR, "  run:", "  replicas: 2\n  run:", r"spec.replicas: .*only where there is one group"),
    (TWO, "mountPath: /data/b", "mountPath: /data/a", r"must have a different `mountPath` in each dataset"),
    (TWO, "mountPath: /data/b", "mountPath: /data/a/b", r"must not have one `mountPath` below another"),
    (SMALL, "  run:", "  acceptance: [{type: Stream}]\n  run:", r"acceptance\[0\].minTriadMBps: .*must be given with type 'Stream'"),
    (SMALL, "  run:", "  acceptance: [{type: Storage}]\n  run:", r"(?s)acceptance\[0\].path.*acceptance\[0\].sizeBytes.*acceptance\[0\].minWriteMBps"),
    (SMALL, "  run:", "  acceptance: [{type: PingPong}]\n  run:", r"(?s)acceptance\[0\].sizes.*acceptance\[0\].minBandwidthMBps"),
    (SMALL, "  run:", "  acceptance: [{type: Stream, minTriadMBps: 1, path: /scratch}]\n  run:", r"acceptance\[0\].path: .*with type 'Storage' and with no other"),
    (DATA, "{configMap: {name: ics}}", "{node: {path: /srv/../etc}}", r"source.node.path: .*must not contain '..' as a part"),
    (DATA, "{configMap: {name: ics}}", "{persistentVolumeClaim: {claimName: ics, path: a/../..}}", r"persistentVolumeClaim.path: .*must not contain '..' as a part"),
    (SMALL, '    command: ["ring"]', '    command: ["ring"]\n    collect: [{path: out/../.., to: {persistentVolumeClaim: {claimName: results}}}]', r"collect\[0\].path: .*must not contain '..'"),
    (SMALL, '    command: ["ring"]', '    command: ["ring"]\n    collect: [{path: out, to: {persistentVolumeClaim: {claimName: results, path: ../other}}}]', r"collect\[0\].to.persistentVolumeClaim.path: .*must not contain '..'"),
    (BROADCAST, "{name: weights}", "{name: 1weights}", r"beginning with a letter"),
    (BROADCAST, "{name: weights}", "{name: " + "w" * 101 + "}", r"at most 100 characters, so that suffixes fit, but has 101"),
    (BROADCAST, "{http: {url: 'https://example.org/w'}}", "{}", r"spec.source: .*exactly one of `node`"),
    (BROADCAST, "{http: {url: 'https://example.org/w'}}", "{node: {path: /srv/../etc, name: a}}", r"source.node.path: .*must not contain '..'"),
    (BROADCAST, "{http: {url: 'https://example.org/w'}}", "{persistentVolumeClaim: {claimName: a, path: ..}}", r"persistentVolumeClaim.path: .*must not contain '..'"),
    (MAP, "{name: rack}", "{name: 1rack}", r"beginning with a letter"),
    (MAP, "{name: rack}", "{name: " + "r" * 101 + "}", r"at most 100 characters, so that suffixes fit, but has 101"),
]

# Objects that are there, and changes of them. No node takes the clusters, and the Broadcasts' is none.
NOWHERE = "        nodeSelector: {there: is-none}\n        containers:"
PLAIN = cluster("plain", ["ring"], groups=[("node", 1, 2)]).replace("        containers:", NOWHERE)
WITH_DATA = cluster("with-data", ["ring"], groups=[("node", 1, 1)], spec=data("{configMap: {name: ics}}")).replace("        containers:", NOWHERE)
UNPLACED = BROADCAST.replace("{http: {url: 'https://example.org/w'}}", "{configMap: {name: ics}}").replace("[a, b]", "[there-is-none]")
PLACED = UNPLACED.replace("{name: weights}", "{name: placed}").replace("  to:", "  path: weights/1\n  to:")
THERE = {"virtualclusters": (PLAIN, WITH_DATA), "broadcasts": (UNPLACED, PLACED)}
CHANGES = [
    ("virtualclusters/plain", {"run": {"command": ["other"]}}, r"run may not change except while `suspend` is true"),
    ("virtualclusters/plain", {"run": None}, r"run may not be added or removed except while `suspend` is true"),
    ("virtualclusters/plain", {"replicas": 3}, r"replicas of a cluster with something to run may not change except while `suspend` is true"),
    ("virtualclusters/plain", {"groups": [{"name": "node", "replicas": 2, "pod": {"spec": {"containers": [{"name": "node"}]}}}]}, r"groups with something to run may not change except while `suspend` is true"),
    ("virtualclusters/plain", {"data": [{"name": "a", "mountPath": "/data/a", "source": {"configMap": {"name": "a"}}}]}, r"data may not be added or removed except while `suspend` is true"),
    ("virtualclusters/with-data", {"data": [{"name": "ics", "mountPath": "/data/ics", "source": {"configMap": {"name": "other"}}}]}, r"data may not change except while `suspend` is true"),
    ("broadcasts/weights", {"path": "elsewhere"}, r"path may not be added or removed"),
    ("broadcasts/placed", {"path": "elsewhere"}, r"path is immutable; make a new Broadcast"),
    ("broadcasts/placed", {"source": {"configMap": {"name": "other"}}}, r"source is immutable; make a new Broadcast"),
]
# Of a cluster that is suspended all of this may change.
FREED = [(path, change) for path, change, _ in CHANGES if path.startswith("virtualclusters/plain")]
