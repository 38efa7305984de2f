"""Datasets and maps that belong to no cluster: every source, what cannot be read, what is made again under its name."""

from d_volumes import broadcast, pod
from kubernetes import Failed
from shared import expect, web_server

LONG = True
WEB = web_server(
    "mkdir -p /tmp/www/private && echo open > /tmp/www/open && echo closed > /tmp/www/private/closed && echo '/private:reader:word' > /tmp/httpd.conf && exec httpd -f -p 8080 -h /tmp/www -c /tmp/httpd.conf",
    "/open",
)
MAP = """
apiVersion: gridcast.io/v1alpha1
kind: NetworkMap
metadata: {{name: {name}}}
spec: {{of: {of}, count: 3{more}}}
"""


def staged(kube, name, namespace, node, path):
    """What a node has of it."""
    return kube.node("exec", node[1:], "sh", "-c", f"cat /var/lib/gridcast/data/{namespace}/{name}/{path}").stdout.strip()


def scenario_every_source_of_a_broadcast(kube):
    with kube.namespace("sources") as namespace:
        kube.apply(WEB, namespace)
        kube.kubectl("-n", namespace, "wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
        kube.kubectl("-n", namespace, "create", "secret", "generic", "licence", "--from-literal=key=only for these")
        # Basic, of reader:word.
        kube.kubectl("-n", namespace, "create", "secret", "generic", "reader", "--from-literal=authorization=Basic cmVhZGVyOndvcmQ=")
        url = f"http://web.{namespace}.svc"
        private = f"{url}/private/closed"
        for name, source in (
            ("of-secret", "{secret: {secretName: licence}}"),
            ("with-key", f"{{http: {{url: '{private}', secretName: reader}}}}"),
            ("without-key", f"{{http: {{url: '{private}'}}}}"),
            ("missing", f"{{http: {{url: '{url}/is-not-there'}}}}"),
            ("no-secret", "{secret: {secretName: there-is-none}}"),
            ("no-claim", "{persistentVolumeClaim: {claimName: there-is-none}}"),
            ("no-node", "{node: {path: /srv/gridcast-e2e, name: n9}}"),
        ):
            kube.apply(broadcast(name, source, "{nodes: [n1, n3]}"), namespace)
        for name, file, text in (("of-secret", "key", "only for these"), ("with-key", "closed", "closed")):
            kube.wait_condition("bc", name, namespace, "Ready", reason="Staged")
            for node in ("n1", "n3"):
                expect(f"{name} on {node}", staged(kube, name, namespace, node, file), text)
        for name, reason, message in (
            ("without-key", "FetchFailed", r"401 Unauthorized; name a Secret with the key `authorization`"),
            ("missing", "FetchFailed", r"/is-not-there: the server answered 404 Not Found; look at the URL"),
            ("no-secret", None, r'there-is-none.*not found'),
            ("no-claim", "SourceUnschedulable", r'persistentvolumeclaim "there-is-none" not found'),
            ("no-node", "NoSourceNode", r"there is no Kubernetes node n9"),
        ):
            kube.wait_condition("bc", name, namespace, "Ready", "False", reason=reason, message=message, timeout=90)
            expect(f"Reconciling of {name}", (kube.condition("bc", name, namespace, "Reconciling") or {}).get("status"), "True")
        # The cause goes.
        kube.kubectl("-n", namespace, "create", "secret", "generic", "there-is-none", "--from-literal=key=now")
        kube.kubectl("-n", namespace, "exec", "web", "--", "sh", "-c", "echo here > /tmp/www/is-not-there")
        for name in ("no-secret", "missing"):
            kube.wait_condition("bc", name, namespace, "Ready", reason="Staged", timeout=180)
        expect("pods left of the sources", [p["metadata"]["name"] for p in kube.pods(namespace, "app.kubernetes.io/name=gridcast-source") if p["metadata"]["labels"].get("gridcast.io/broadcast-uid") == kube.get("bc", "of-secret", namespace)["metadata"]["uid"]], [])


def scenario_maps_of_nodes(kube):
    """Between nodes that are named, that are selected, and again after a minute."""
    with kube.namespace("maps") as namespace:
        try:
            for node in ("n1", "n2"):
                kube.kubectl("label", "node", node, "gridcast.test/rack=r1")
            for name, of, more in (
                ("named", "{nodes: [n1, n2, n3]}", ""),
                ("selected", "{nodeSelector: {gridcast.test/rack: r1}}", ", intervalSeconds: 60"),
                ("nowhere", "{nodeSelector: {gridcast.test/rack: r9}}", ""),
                ("unknown", "{nodes: [n1, n9]}", ""),
            ):
                kube.apply(MAP.format(name=name, of=of, more=more), namespace)
            for name, hosts in (("named", ["n1", "n2", "n3"]), ("selected", ["n1", "n2"])):
                kube.wait_condition("nmap", name, namespace, "Ready", reason="Measured", timeout=90)
                status = kube.get("nmap", name, namespace)["status"]
                expect(f"hosts of {name}", status["matrices"]["hosts"], hosts)
                for figure in ("rttMilliseconds", "bandwidthMbps"):
                    rows = status["matrices"][figure]
                    rows = rows if isinstance(rows, list) else rows["64"]
                    pairs = [value for i, row in enumerate(rows) for j, value in enumerate(row) if i != j]
                    if not all(isinstance(value, (int, float)) and value > 0 for value in pairs):
                        raise Failed(f"{figure} of {name}: {rows}")
            kube.wait_condition("nmap", "nowhere", namespace, "Ready", "False", timeout=30)
            kube.wait_condition("nmap", "unknown", namespace, "Ready", "False", message="n9", timeout=30)
            notes = [f"{name}: {(lambda c: c['reason'] + ': ' + c['message'])(kube.condition('nmap', name, namespace, 'Ready'))}" for name in ("nowhere", "unknown")]
            first = kube.get("nmap", "selected", namespace)["status"]["measuredTime"]
            # A node more: another map. And the time comes.
            kube.kubectl("label", "node", "n3", "gridcast.test/rack=r1")
            kube.wait("the third is in it", lambda: len(kube.get("nmap", "selected", namespace)["status"].get("matrices", {}).get("hosts", [])) == 3, 90, every=1)
            third = kube.get("nmap", "selected", namespace)["status"]["measuredTime"]
            kube.wait("it is measured again", lambda: kube.get("nmap", "selected", namespace)["status"]["measuredTime"] not in (first, third), 150, every=2)
            expect("Ready over measurements", kube.condition("nmap", "selected", namespace, "Ready")["status"], "True")
            return notes
        finally:
            for node in kube.nodes():
                kube.kubectl("label", "node", node, "gridcast.test/rack-", check=False)


def mounted(kube, node):
    """Places where a node has a dataset for a pod."""
    script = "grep csi.gridcast.io /proc/self/mountinfo; ls -d /var/lib/kubelet/pods/*/volumes/kubernetes.io~csi/* 2>/dev/null; true"
    return kube.node("exec", node[1:], "sh", "-c", script).stdout.split("\n")[:-1]


def ready(kube, namespace, *names):
    for name in names:
        kube.kubectl("-n", namespace, "wait", "--for=condition=Ready", f"pod/{name}", "--timeout=120s", timeout=150)


def scenario_a_broadcast_made_again_under_its_name(kube):
    """A pod that comes later sees the new content, whole."""
    with kube.namespace("remade") as namespace:
        for content in ("first", "second"):
            kube.kubectl("-n", namespace, "create", "configmap", "ics", f"--from-literal=a={content}", f"--from-literal=only-{content}=x")
            kube.apply(broadcast("data"), namespace)
            kube.apply(pod(content, "cat /data/a; ls /data; sleep 1000"), namespace)
            ready(kube, namespace, content)
            expect(f"what the {content} sees", kube.kubectl("-n", namespace, "exec", content, "--", "sh", "-c", "cat /data/a; echo; ls /data").split(), [content, "a", f"only-{content}"])
            kube.kubectl("-n", namespace, "delete", "configmap", "ics")
            if content == "first":
                # It cannot go, nor be another, while a pod has it.
                kube.kubectl("-n", namespace, "delete", "bc", "data", "--wait=false")
                kube.kubectl("-n", namespace, "delete", "pod", "first")
                kube.wait_gone("bc", "data", namespace, 60)
        kube.kubectl("-n", namespace, "delete", "pod", "second")
        kube.wait("nothing is mounted", lambda: not mounted(kube, "n2"), 30)


def scenario_a_pod_on_a_node_that_is_not_meant(kube):
    with kube.namespace("outside") as namespace:
        kube.kubectl("-n", namespace, "create", "configmap", "ics", "--from-literal=a=1")
        kube.apply(broadcast("data", to="{nodes: [n1]}"), namespace)
        kube.wait_condition("bc", "data", namespace, "Ready")
        kube.apply(pod("outside", "sleep 1000", node="n2"), namespace)
        why = kube.wait(
            "it is told why",
            lambda: [e["message"] for e in kube.get("events", namespace=namespace) if e["reason"] == "FailedMount" and e["involvedObject"]["name"] == "outside"],
            150, every=1,
        )
        expect("phase", kube.get("pod", "outside", namespace)["status"]["phase"], "Pending")
        kube.kubectl("-n", namespace, "patch", "bc", "data", "--type=merge", "-p", '{"spec":{"to":{"nodes":["n1","n2"]}}}')
        ready(kube, namespace, "outside")
        kube.kubectl("-n", namespace, "delete", "pod", "outside")
        return why[:1]


def scenario_kubelet_is_restarted_with_volumes(kube):
    with kube.namespace("restarted") as namespace:
        kube.kubectl("-n", namespace, "create", "configmap", "ics", "--from-literal=a=first", "--from-literal=b=second")
        kube.apply(broadcast("data"), namespace)
        kube.apply(pod("before", "sleep 1000"), namespace)
        kube.apply(pod("part", "sleep 1000", sub=", subPath: b"), namespace)
        ready(kube, namespace, "before", "part")
        kube.node("kill", 2)
        kube.node("start", 2)
        kube.kubectl("wait", "--for=condition=Ready", "node/n2", "--timeout=90s")
        reads = lambda name, path: kube.kubectl("-n", namespace, "exec", name, "--", "cat", path, check=False).strip()
        kube.wait("it reads on", lambda: reads("before", "/data/a") == "first" and reads("part", "/data") == "second", 60, every=1)
        kube.apply(pod("after", "sleep 1000"), namespace)
        ready(kube, namespace, "after")
        expect("what the later one sees", reads("after", "/data/b"), "second")
        # One is deleted while its kubelet is away.
        kube.node("kill", 2)
        kube.kubectl("-n", namespace, "delete", "pod", "before", "--wait=false")
        kube.node("start", 2)
        kube.kubectl("-n", namespace, "delete", "pod", "part", "after", "--timeout=90s", timeout=120)
        kube.wait_gone("pod", "before", namespace, 90)
        kube.wait("nothing is mounted", lambda: not mounted(kube, "n2"), 60, every=1)
        kube.kubectl("-n", namespace, "delete", "bc", "data", "--timeout=60s")
        expect("what is left of the data", kube.node("exec", 2, "sh", "-c", f"ls -A /var/lib/gridcast/data/{namespace} 2>/dev/null; true").stdout, "")
