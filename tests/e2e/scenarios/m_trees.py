"""A broadcast on a network with a slow node: planned by what is measured, carried by several trees, slow for the slow one only."""

import contextlib
import os
import shutil
import subprocess

from d_volumes import broadcast
from kubernetes import Failed, shell_variable
from shared import FOLDERS, alone, dataset, expect, listing, on_node

# The link to the slow node, Mbit/s.
SLOW = 60
# Of random data: more than is staged before it could be measured.
BYTES = 32 << 20


@contextlib.contextmanager
def slow_link(node):
    """What comes to this node comes slowly."""
    words = ["tc", "-n", shell_variable("CP_NS"), "qdisc"]
    device = ["dev", f"v{node}", "root"]
    subprocess.run([*words, "add", *device, "tbf", "rate", f"{SLOW}mbit", "burst", "64kb", "latency", "50ms"], check=True)
    try:
        yield
    finally:
        subprocess.run([*words, "del", *device], check=True)


@alone
def scenario_a_slow_node_has_a_tree_of_its_own(kube):
    source = f"{FOLDERS}/trees"
    dataset(source)
    with open(f"{source}/random", "wb") as file:
        file.write(os.urandom(BYTES))
    try:
        with kube.namespace("trees") as namespace, slow_link("n3"):
            kube.apply(broadcast("ics", f"{{node: {{path: {source}, name: n1}}}}"), namespace)
            kube.wait_condition("bc", "ics", namespace, "Ready", reason="Staged", timeout=90)
            status = kube.get("bc", "ics", namespace)["status"]
            expect("strategy and kind of bound", (status["strategy"], status["boundKind"]), ("Stable", "Measured"))
            if status["trees"] < 2:
                raise Failed(f"one tree for fast and slow nodes: {status}")
            shown = kube.kubectl("-n", namespace, "get", "bc", "ics").splitlines()
            row = dict(zip(shown[0].split(), shown[1].split()))
            expect("what kubectl get bc shows", (row["STRATEGY"], row["TREES"]), ("Stable", str(status["trees"])))
            if status["sourceBytesRead"] > 1.05 * status["sizeBytes"]:
                raise Failed(f"read {status['sourceBytesRead']} bytes of {status['sizeBytes']}")
            rates = {node["name"]: node["rateMbps"] for node in status["worst"]}
            if rates["n2"] < 2 * rates["n3"] or rates["n3"] < 0.7 * SLOW:
                raise Failed(f"rates: {rates}")
            wanted = listing(source)
            for node in kube.nodes():
                expect(f"what {node} has", on_node(kube, node, f"/var/lib/gridcast/data/{namespace}/ics"), wanted)
            return [f"{status['trees']} trees; n2 at {rates['n2']:.0f} Mbit/s, n3 at {rates['n3']:.0f} of {SLOW}", *shown]
    finally:
        shutil.rmtree(source, ignore_errors=True)
