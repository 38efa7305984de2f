"""What those look at who run it: health, metrics, who is answered on which port."""

import base64
import json
import os
import re
import tempfile

from d_volumes import broadcast
from kubernetes import SYSTEM, Failed, cluster
from shared import complete, expect

LONG = True
# OpenMetrics: metadata, samples with labels, the end.
SAMPLE = re.compile(r'^([a-z_][a-z0-9_]*)(?:\{((?:[a-z_]+="(?:[^"\\]|\\.)*",?)*)\})? (-?[0-9.eE+-]+|NaN|[+-]Inf)(?: .*)?$')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
KNOWN_LABELS = {"kind", "result", "verb", "stage", "state", "version", "le", "reason"}


def fetch(kube, address, path):
    """Code and text of a page, asked for in the lab's network."""
    script = (
        "import sys, urllib.request, urllib.error\n"
        "try:\n    answer = urllib.request.urlopen(sys.argv[1], timeout=20); print(answer.status); print(answer.read().decode())\n"
        "except urllib.error.HTTPError as error:\n    print(error.code); print(error.read().decode())\n"
    )
    code, _, text = kube.run("/usr/bin/python3", "-c", script, f"http://{address}{path}").stdout.partition("\n")
    return int(code), text


def parsed(text):
    """Samples of an exposition, as (name, labels); every one has a type, names are not told twice."""
    lines = text.strip().splitlines()
    expect("the last line", lines[-1], "# EOF")
    types, samples = {}, []
    for line in lines[:-1]:
        if line.startswith("# TYPE "):
            _, _, name, type_ = line.split()
            if name in types:
                raise Failed(f"{name} is told of twice")
            types[name] = type_
            continue
        if line.startswith("# "):
            continue
        found = SAMPLE.match(line)
        if not found:
            raise Failed(f"no sample of OpenMetrics: {line!r}")
        samples.append((found[1], dict(LABEL.findall(found[2] or ""))))
    for name, _ in samples:
        if not any(name == known or name.startswith(f"{known}_") for known in types):
            raise Failed(f"{name} has no type")
    if len({(name, json.dumps(labels, sort_keys=True)) for name, labels in samples}) != len(samples):
        raise Failed("a series is there twice")
    return samples


def scenario_metrics_and_health(kube):
    """Text that Prometheus reads, a bounded number of series, no name of an object in them."""
    with kube.namespace("metrics") as namespace:
        operator = next(p for p in kube.pods(SYSTEM, "app.kubernetes.io/name=gridcast-operator") if "deletionTimestamp" not in p["metadata"])
        pages = {"operator": f"{operator['status']['podIP']}:8080"}
        for agent in kube.pods(SYSTEM, "app.kubernetes.io/name=gridcast-agent"):
            pages[agent["spec"]["nodeName"]] = f"{agent['status']['hostIP']}:7414"

        def counts():
            found = {}
            for who, address in pages.items():
                samples = parsed(fetch(kube, address, "/metrics")[1])
                for name, labels in samples:
                    if not name.startswith("gridcast_") or not set(labels) <= KNOWN_LABELS:
                        raise Failed(f"{who}: {name} {labels}")
                    if any(namespace in value or "unheard-of" in value for value in labels.values()):
                        raise Failed(f"{who}: {name} has the name of an object: {labels}")
                found[who] = len(samples)
            return found

        for who, address in pages.items():
            for path in ("/healthz", "/readyz"):
                expect(f"{path} of {who}", fetch(kube, address, path), (200, "ok\n\n"))
            expect(f"another page of {who}", fetch(kube, address, "/secrets")[0], 404)
        counts()
        kube.kubectl("-n", namespace, "create", "configmap", "ics", "--from-literal=a=1")
        names = [f"unheard-of-{index}" for index in range(4)]
        for name in names:
            kube.apply(cluster(name, ["true"], groups=[("node", 2, 1)]), namespace)
        for name in names[:2]:
            complete(kube, name, namespace, timeout=120)
        middle = counts()
        for name in names[2:]:
            complete(kube, name, namespace, timeout=120)
        after = counts()
        if any(after[who] > middle[who] + 60 or after[who] > 600 for who in pages):
            raise Failed(f"series grow with clusters: {middle}, then {after}")
        return [f"series: {after}"]


HANDSHAKE = """
import socket, ssl, sys
host, port, name, folder = sys.argv[1:]
context = ssl.create_default_context(cafile=f"{folder}/ca.pem")
context.check_hostname = False
context.verify_mode = ssl.CERT_NONE
context.set_alpn_protocols(["h2"])
context.load_cert_chain(f"{folder}/cert.pem", f"{folder}/key.pem")
try:
    with socket.create_connection((host, int(port)), timeout=10) as plain, context.wrap_socket(plain, server_hostname=name) as tls:
        tls.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + bytes(3) + b"\\x04" + bytes(5))
        answer = tls.recv(64)
        print("answered" if answer else "closed")
except (ssl.SSLError, ConnectionError) as error:
    print("refused:", error)
"""


def for_openssl(pem):
    """An Ed25519 key without its public half beside it, which OpenSSL 3.0 does not read."""
    der = base64.b64decode("".join(line for line in pem.decode().splitlines() if not line.startswith("-")))
    seed = der.split(bytes.fromhex("04220420"), 1)[1][:32]
    text = base64.b64encode(bytes.fromhex("302e020100300506032b657004220420") + seed).decode()
    return f"-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n".encode()


def knock(kube, address, port, name, keys):
    """Whether a service speaks with someone who has these keys: HTTP/2 begins, or TLS ends it."""
    with tempfile.TemporaryDirectory() as folder:
        for file, text in keys.items():
            with open(os.path.join(folder, file), "wb") as out:
                content = base64.b64decode(text)
                out.write(for_openssl(content) if file == "key.pem" else content)
        return kube.run("/usr/bin/python3", "-c", HANDSHAKE, address, str(port), name, folder).stdout.strip()


def keys_of(kube, namespace, prefix):
    names = [s for s in kube.get("secrets", namespace=namespace) if s["metadata"]["name"].startswith(prefix) and "key.pem" in s.get("data", {})]
    return names[0]["data"] if names else None


def scenario_strangers_with_keys(kube):
    """A member's keys open its own cluster's starters and nothing else; a source's open agents, and no starter."""
    with kube.namespace("keys") as namespace:
        for name in ("one", "other"):
            kube.apply(cluster(name, None, groups=[("node", 1, 1)]), namespace)
        # Its source waits for a claim, and has its keys already.
        kube.apply(broadcast("waits", "{persistentVolumeClaim: {claimName: there-is-none}}"), namespace)
        for name in ("one", "other"):
            kube.wait_condition("vcl", name, namespace, "Ready")
        source = kube.wait("the source's keys", lambda: keys_of(kube, namespace, "waits"), 60)
        agent = next(p for p in kube.pods(SYSTEM, "app.kubernetes.io/name=gridcast-agent"))
        host, node = agent["status"]["hostIP"], agent["spec"]["nodeName"]
        starters = {name: kube.get("vcl", name, namespace)["status"]["nodes"][0]["address"] for name in ("one", "other")}
        members = {name: keys_of(kube, namespace, f"{name}-keys") for name in ("one", "other")}
        for what, seen, wanted in (
            ("a member at its own starter", knock(kube, starters["one"], 7412, "one-node-0", members["one"]), "answered"),
            ("a member at another cluster's", knock(kube, starters["other"], 7412, "other-node-0", members["one"]), "refused"),
            ("a member at an agent", knock(kube, host, 7411, node, members["one"]), "refused"),
            ("a source at an agent", knock(kube, host, 7411, node, source), "answered"),
            ("a source at a starter", knock(kube, starters["one"], 7412, "one-node-0", source), "refused"),
        ):
            if not seen.startswith(wanted):
                raise Failed(f"{what}: {seen}, not {wanted}")


FOREIGN = """
apiVersion: v1
kind: Pod
metadata: {name: liar}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false
  containers:
  - name: agent
    image: ghcr.io/gridcast/agent:0.1.0
    args: [node]
    env:
    - {name: NODE_NAME, value: n1}
    - {name: HOST_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: GRIDCAST_OPERATOR, value: "gridcast-operator.gridcast-system.svc:7410"}
    - {name: GRIDCAST_TOKEN, value: /gridcast/token/token}
    - {name: GRIDCAST_AUTHORITY, value: /gridcast/authority/ca.pem}
    - {name: GRIDCAST_STATE, value: /state}
    - {name: GRIDCAST_MOUNTS_SOCKET, value: /state/agent.sock}
    volumeMounts:
    - {name: state, mountPath: /state}
    - {name: token, mountPath: /gridcast/token}
    - {name: authority, mountPath: /gridcast/authority}
  volumes:
  - {name: state, emptyDir: {}}
  - {name: token, projected: {sources: [{serviceAccountToken: {path: token, audience: gridcast.io}}]}}
  - {name: authority, configMap: {name: authority}}
"""


def scenario_a_certificate_for_a_stranger(kube):
    """The very agent, with a good token of another service account, says that it is n1: it gets nothing."""

    def certificates():
        operator = next(p for p in kube.pods(SYSTEM, "app.kubernetes.io/name=gridcast-operator") if "deletionTimestamp" not in p["metadata"])
        text = fetch(kube, f"{operator['status']['podIP']}:8080", "/metrics")[1]
        return {found[1]: int(found[2]) for found in re.finditer(r'certificates_total\{result="([^"]+)"\} (\d+)', text)}

    with kube.namespace("stranger") as namespace:
        authority = kube.get("configmap", "gridcast-ca", SYSTEM)["data"]["ca.pem"]
        kube.kubectl("-n", namespace, "create", "configmap", "authority", f"--from-literal=ca.pem={authority}")
        before = certificates()
        kube.apply(FOREIGN, namespace)
        told = lambda: (lambda log: log if "certificate" in log.lower() else None)(kube.kubectl("-n", namespace, "logs", "liar", check=False))
        log = kube.wait("it says that it has no certificate", told, 90, every=1)
        kube.wait("the operator has counted it", lambda: sum(v for k, v in certificates().items() if k != "issued") > sum(v for k, v in before.items() if k != "issued"), 60, every=1)
        expect("certificates issued meanwhile", certificates().get("issued", 0), before.get("issued", 0))
        # The same program with the agents' own token gets one.
        victim = kube.pods(SYSTEM, "app.kubernetes.io/name=gridcast-agent")[0]["metadata"]["name"]
        kube.kubectl("-n", SYSTEM, "delete", "pod", victim)
        kube.kubectl("-n", SYSTEM, "rollout", "status", "daemonset/gridcast-agent", "--timeout=90s")
        kube.wait("one more is issued", lambda: certificates().get("issued", 0) > before.get("issued", 0), 60, every=1)
        return [log.strip().splitlines()[-1][:300], f"{certificates()}"]
