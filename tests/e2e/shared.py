"""What several scenarios do: wait for an end, compare trees, write datasets."""

import json
import os
import shutil
import subprocess

from kubernetes import ROOT, Failed, shell_variable

# What volumes are made of: each lab has its own, as each has its own network namespaces.
FOLDERS = f"/srv/{shell_variable('NS')}"


def alone(scenario):
    """It breaks or counts what others use: nothing runs beside it."""
    scenario.alone = True
    return scenario


def complete(kube, name, namespace, timeout=90):
    """Waits for the end, checks that the program ended well where it should have run, and returns the object."""
    kube.wait_condition("vcl", name, namespace, "Ready", reason="Completed", timeout=timeout)
    found = kube.get("vcl", name, namespace)
    run = found["status"]["run"]
    if run["exitCode"] != 0 or run["restarts"] != 0:
        raise Failed(f"exit code {run['exitCode']} after {run['restarts']} restarts: {run.get('logTail')}")
    return found


def placed(found):
    """Ranks by node, as status tells them."""
    return {place["host"]: place["ranks"] for place in found["status"]["run"]["placement"]}


def expect(what, seen, wanted):
    if seen != wanted:
        raise Failed(f"{what}: {seen!r}, not {wanted!r}")


def dataset(path):
    """The ring example's dataset in small: a large file, small ones, a symlink, a hole, an executable."""
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(f"{path}/small/empty")
    with open(f"{path}/large", "wb") as file:
        file.write(os.urandom(900_000))
    for index in range(50):
        with open(f"{path}/small/{index}", "w", encoding="utf-8") as file:
            file.write("x" * index)
    os.symlink("../large", f"{path}/small/link")
    with open(f"{path}/holes", "wb") as file:
        file.truncate(1 << 20)
        file.seek(1 << 20)
        file.write(b"end")
    os.chmod(f"{path}/small/1", 0o755)


def listing(path):
    """Names, types, modes, mtimes and hashes of a tree, to be compared."""
    script = (
        "cd \"$0\" && find . -printf '%P %y %m %T@ %l\\n' | sort"
        " && find . -type f -exec sha256sum {} + | sort -k2"
    )
    return subprocess.run(["sh", "-c", script, path], check=True, capture_output=True, text=True).stdout


def on_node(kube, node, path):
    script = (
        "cd \"$0\" && find . -printf '%P %y %m %T@ %l\\n' | sort"
        " && find . -type f -exec sha256sum {} + | sort -k2"
    )
    return kube.node("exec", node.removeprefix("n"), "sh", "-c", script, path).stdout


def web_server(command, ready):
    """A pod `web` whose shell runs `command`, a server at port 8080, and its Service; it is ready when it has the page `ready`."""
    return f"""
apiVersion: v1
kind: Pod
metadata: {{name: web, labels: {{app: web}}}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: web
    image: registry.example/busybox:1
    command: [sh, -c, {json.dumps(command)}]
    readinessProbe: {{httpGet: {{path: {ready}, port: 8080}}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {{name: web}}
spec: {{selector: {{app: web}}, ports: [{{port: 80, targetPort: 8080}}]}}
"""


def check_schema(report):
    schema = json.load(open(f"{ROOT}/docs/report.schema.json", encoding="utf-8"))
    unknown = set(report) - set(schema["properties"])
    missing = set(schema["required"]) - set(report)
    if unknown or missing:
        raise Failed(f"the report has {unknown} beyond its schema and lacks {missing}")


RING = ["examples/ring/ring", "-n", "10", "-m", "65536", "/data/ics"]



def data(source):
    return f"data:\n- name: ics\n  mountPath: /data/ics\n  source: {source}\n"
