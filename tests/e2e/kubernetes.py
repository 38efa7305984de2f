"""The lab's cluster as the scenarios see it: kubectl, helm, nodes to break, the audit log to count writes in."""

import contextlib
import http.client
import json
import os
import re
import socket
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LAB = os.environ.get("LAB", os.path.join(ROOT, "target/e2e/lab"))
IMAGES = os.path.join(ROOT, "target/images")
SYSTEM = "gridcast-system"
KINDS = ("virtualclusters", "broadcasts", "networkmaps")


class Failed(Exception):
    """What a scenario found wrong, for people."""


class Api:
    """The API server by plain HTTP: a request costs milliseconds, a kubectl a tenth of a second of one of two cores."""

    def __init__(self, path):
        self.path = path

    def ask(self, method, path, body=None, kind="application/json"):
        """Code and answer, an object where the server says that it is one. `kind`: media type of the body."""
        connection = http.client.HTTPConnection("localhost", timeout=60)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(self.path)
        try:
            text = body if isinstance(body, str) or body is None else json.dumps(body)
            connection.request(method, path, body=text.encode() if text is not None else None, headers={"Content-Type": kind, "Accept": "application/json"})
            answer = connection.getresponse()
            told = answer.read().decode()
            return answer.status, json.loads(told) if "json" in answer.getheader("Content-Type", "") else told
        finally:
            connection.close()

    def must(self, method, path, body=None, kind="application/json"):
        code, answer = self.ask(method, path, body, kind)
        if code >= 300:
            raise Failed(f"{method} {path}: {code} {answer.get('message', answer) if isinstance(answer, dict) else answer}")
        return answer

    def patch(self, path, changes):
        return self.must("PATCH", path, changes, "application/merge-patch+json")


def shell_variable(name):
    """A variable of lab/lib.sh, so that names and addresses are decided in one place."""
    script = f'. {HERE}/lab/lib.sh; printf %s "${name}"'
    return subprocess.run(["bash", "-c", script], env={**os.environ, "LAB": LAB}, check=True, capture_output=True, text=True).stdout


class Kubernetes:
    def __init__(self):
        self.network = shell_variable("CP_NS")
        self.server = shell_variable("CP_IP")
        self.environment = {
            **os.environ,
            "LAB": LAB,
            "PATH": f"{LAB}/bin:{ROOT}/target/bin:{os.environ['PATH']}",
            "KUBECONFIG": f"{LAB}/pki/admin.conf",
        }

    # Commands in the control plane's network namespace.

    def command(self, *words):
        return ["nsenter", f"--net=/run/netns/{self.network}", "--", *words]

    def run(self, *words, stdin=None, check=True, timeout=120):
        done = subprocess.run(
            self.command(*words), input=stdin, env=self.environment, capture_output=True, text=True, timeout=timeout, cwd=ROOT
        )
        if check and done.returncode != 0:
            raise Failed(f"{' '.join(words)}: exit code {done.returncode}: {(done.stderr or done.stdout).strip()}")
        return done

    def start(self, *words, **options):
        return subprocess.Popen(self.command(*words), env=self.environment, cwd=ROOT, text=True, **options)

    def kubectl(self, *words, **options):
        return self.run("kubectl", *words, **options).stdout

    def gridcast(self, *words, **options):
        """kubectl gridcast, as a user types it: the plugin is found in PATH."""
        return self.run("kubectl", "gridcast", *words, **options)

    def helm(self, *words, **options):
        return self.run("helm", *words, **{"timeout": 400, **options}).stdout

    @contextlib.contextmanager
    def api(self):
        with tempfile.TemporaryDirectory() as folder:
            proxy = self.start("kubectl", "proxy", f"--unix-socket={folder}/api", "--reject-methods=^$", stdout=subprocess.DEVNULL)
            try:
                self.wait("kubectl proxy listens", lambda: os.path.exists(f"{folder}/api"), 30)
                yield Api(f"{folder}/api")
            finally:
                proxy.terminate()
                proxy.wait(10)

    def is_installed(self):
        return bool(self.helm("list", "-q", "-n", SYSTEM, check=False).strip())

    def install(self, *values):
        """As the README says, with the directory that scenarios keep data in, and with these values."""
        more = [word for value in values for word in ("--set", value)]
        self.helm("install", "gridcast", "charts/gridcast", "-n", SYSTEM, "--create-namespace", "--set", "agent.sourceDirectories={/srv}", *more)
        self.wait_rollout()

    def uninstall(self):
        self.helm("uninstall", "gridcast", "-n", SYSTEM)
        self.wait("the system's pods are gone", lambda: not self.pods(SYSTEM), 90)

    def wait_rollout(self):
        for what in ("deployment/gridcast-operator", "daemonset/gridcast-agent"):
            self.kubectl("-n", SYSTEM, "rollout", "status", what, "--timeout=90s")

    # Objects.

    def apply(self, text, namespace, check=True):
        return self.run("kubectl", "-n", namespace, "apply", "-f", "-", stdin=text, check=check)

    def get(self, kind, name=None, namespace=None, selector=None):
        """The object, None if there is none; without a name the list of all."""
        words = ["kubectl", "get", kind, "-o", "json"]
        words += [name] if name else []
        words += ["-n", namespace] if namespace else []
        words += ["-l", selector] if selector else []
        done = self.run(*words, check=False)
        if done.returncode != 0:
            if "NotFound" in done.stderr or "not found" in done.stderr:
                return None if name else []
            raise Failed(f"{' '.join(words)}: {done.stderr.strip()}")
        found = json.loads(done.stdout)
        return found if name else found["items"]

    def pods(self, namespace, selector=None):
        return self.get("pods", namespace=namespace, selector=selector)

    def condition(self, kind, name, namespace, type_):
        found = self.get(kind, name, namespace) or {}
        for condition in found.get("status", {}).get("conditions", []):
            if condition["type"] == type_:
                return condition
        return None

    # Waiting.

    def wait(self, what, look, timeout=60, every=0.2):
        """Until `look` returns something true, which it returns. What it said last is told if it never does."""
        end = time.monotonic() + timeout
        while True:
            seen = look()
            if seen:
                return seen
            if time.monotonic() > end:
                raise Failed(f"{what}: not within {timeout} s; last seen: {seen!r}")
            time.sleep(every)

    def wait_condition(self, kind, name, namespace, type_, status="True", reason=None, message=None, timeout=60):
        last = [None]

        def look():
            last[0] = self.get(kind, name, namespace)
            for condition in (last[0] or {}).get("status", {}).get("conditions", []):
                if (
                    condition["type"] == type_
                    and condition["status"] == status
                    and reason in (None, condition["reason"])
                    and (message is None or re.search(message, condition["message"]))
                ):
                    return condition
            for condition in (last[0] or {}).get("status", {}).get("conditions", []):
                if type_ == "Ready" and status == "True" and condition["type"] == "Failed" and condition["status"] == "True":
                    raise Failed(f"{kind} {name} failed")
            return None

        try:
            return self.wait(f"{kind} {name}: {type_}={status} {reason or ''}", look, timeout)
        except Failed as failed:
            conditions = (last[0] or {}).get("status", {}).get("conditions", [])
            told = "; ".join(f"{c['type']}={c['status']} {c['reason']}: {c['message']}" for c in conditions)
            raise Failed(f"{failed}; conditions: {told or 'none'}") from None

    def wait_gone(self, kind, name, namespace, timeout=60):
        self.wait(f"{kind} {name} is gone", lambda: self.get(kind, name, namespace) is None, timeout)

    # Nodes, as by their power switch and by their daemons.

    def node(self, *words, check=True, timeout=120):
        done = subprocess.run(
            [f"{HERE}/lab/node", *map(str, words)], env=self.environment, capture_output=True, text=True, timeout=timeout
        )
        if check and done.returncode != 0:
            raise Failed(f"node {' '.join(map(str, words))}: {(done.stderr or done.stdout).strip()}")
        return done

    def nodes(self):
        return sorted(node["metadata"]["name"] for node in self.get("nodes"))

    # Namespaces.

    @contextlib.contextmanager
    def namespace(self, name, labels=None):
        """A namespace of a scenario, whose removal is part of it: nothing may hang on."""
        self.wait(f"no namespace {name} of an earlier attempt", lambda: self.get("namespace", name) is None, 90)
        self.kubectl("create", "namespace", name)
        if labels:
            self.kubectl("label", "namespace", name, *[f"{key}={value}" for key, value in labels.items()])
        self.wait(f"service account of {name}", lambda: self.get("serviceaccount", "default", name), 30)
        try:
            yield name
        except BaseException:
            self.describe(name)
            self.kubectl("delete", "namespace", name, "--wait=false", check=False)
            self.remove_volumes(name)
            raise
        self.kubectl("delete", "namespace", name, "--timeout=90s", timeout=120)
        self.remove_volumes(name)

    def remove_volumes(self, namespace):
        for volume in self.get("persistentvolumes"):
            if volume["spec"].get("claimRef", {}).get("namespace") == namespace:
                self.kubectl("delete", "persistentvolume", volume["metadata"]["name"], "--wait=false")

    def describe(self, namespace):
        """What a person would look at, into the log folder."""
        folder = os.path.join(LAB, "log")
        with open(os.path.join(folder, f"failed-{namespace}.log"), "w", encoding="utf-8") as log:
            for words in (
                ["get", "vcl,bc,nmap,pods,pvc", "-o", "wide"],
                ["get", "vcl,bc,nmap", "-o", "yaml"],
                ["describe", "pods"],
                ["get", "events", "--sort-by=.lastTimestamp"],
            ):
                log.write(f"==== kubectl {' '.join(words)}\n{self.run('kubectl', '-n', namespace, *words, check=False).stdout}\n")
            for pod in self.pods(namespace):
                name = pod["metadata"]["name"]
                done = self.run("kubectl", "-n", namespace, "logs", name, "--all-containers", "--prefix", "--tail=50", check=False)
                log.write(f"==== logs of {name}\n{done.stdout}{done.stderr}\n")
            for name in ("deployment/gridcast-operator", "daemonset/gridcast-agent"):
                done = self.run(
                    "kubectl", "-n", SYSTEM, "logs", name, "--all-containers", "--all-pods", "--prefix", "--tail=200", check=False
                )
                log.write(f"==== {name}\n{done.stdout}{done.stderr}\n")

    def volume(self, namespace, claim, path):
        """A claim bound to a folder that all nodes see."""
        os.makedirs(path, exist_ok=True)
        self.apply(
            f"""
apiVersion: v1
kind: PersistentVolume
metadata: {{name: {namespace}-{claim}}}
spec:
  capacity: {{storage: 1Gi}}
  accessModes: [ReadWriteMany]
  storageClassName: ""
  persistentVolumeReclaimPolicy: Retain
  hostPath: {{path: {path}}}
  claimRef: {{namespace: {namespace}, name: {claim}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {claim}}}
spec:
  accessModes: [ReadWriteMany]
  storageClassName: ""
  volumeName: {namespace}-{claim}
  resources: {{requests: {{storage: 1Gi}}}}
""",
            namespace,
        )

    # The audit log: who wrote what.

    def writes(self, since=None, user="system:serviceaccount:gridcast-system:", ignore=("leases", "tokenreviews", "subjectaccessreviews")):
        """Writes of gridcast's identities as `verb resource/subresource namespace/name`; `since`: seconds of the epoch."""
        found = []
        with open(os.path.join(LAB, "log/audit.log"), encoding="utf-8") as log:
            for line in log:
                event = json.loads(line)
                reference = event.get("objectRef", {})
                if not event["user"]["username"].startswith(user) or reference.get("resource") in ignore:
                    continue
                if since is not None and seconds(event["requestReceivedTimestamp"]) < since:
                    continue
                resource = "/".join(filter(None, (reference.get("resource"), reference.get("subresource"))))
                code = event.get("responseStatus", {}).get("code")
                found.append(f"{event['verb']} {resource} {reference.get('namespace', '')}/{reference.get('name', '')} {code}")
        return found


def seconds(time_text):
    """Seconds of the epoch of an RFC 3339 time."""
    import datetime

    return datetime.datetime.fromisoformat(time_text.replace("Z", "+00:00")).timestamp()


def cluster(name, command, *, image="registry.example/sl-openmpi:9", groups=None, processes=None, implementation=None, spec="", run="", pod=""):
    """A VirtualCluster as YAML. `groups`: (name, replicas, slots) each; `spec`, `run`, `pod`: further lines of these."""
    groups = groups or [("node", 3, 1)]
    processes = processes or sum(replicas * slots for _, replicas, slots in groups)

    def indented(text, by):
        return "".join(f"{' ' * by}{line}\n" for line in text.strip("\n").splitlines())

    text = f"apiVersion: gridcast.io/v1alpha1\nkind: VirtualCluster\nmetadata: {{name: {name}}}\nspec:\n  groups:\n"
    for group, replicas, slots in groups:
        text += f"  - name: {group}\n    replicas: {replicas}\n    slots: {slots}\n    pod:\n      spec:\n"
        text += f"        containers:\n        - name: node\n          image: {image}\n{indented(pod, 10)}"
    text += indented(spec, 2)
    if command is not None:
        text += f"  run:\n    processes: {processes}\n    command: {json.dumps(command)}\n"
        text += f"    implementation: {implementation}\n" if implementation else ""
        text += indented(run, 4)
    return text
