"""Programs run: data from everywhere, every flavour, every kind of node."""

import json
import os
import shutil
import signal
import subprocess
import tempfile

from kubernetes import ROOT, Failed, cluster
from shared import FOLDERS, RING, check_schema, complete, data, dataset, expect, listing, on_node, placed, web_server

TOGETHER = True


DEFAULT_CLASS = """
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: readme, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: kubernetes.io/no-provisioner
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: readme-ics}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: readme
  persistentVolumeReclaimPolicy: Retain
  hostPath: {path: PATH}
  claimRef: {namespace: readme, name: ics}
"""


def readme_block():
    """The block of the README's Kubernetes section that runs the example, line by line."""
    section = open(f"{ROOT}/README.md", encoding="utf-8").read().split("\n## On Kubernetes\n")[1].split("\n## ")[0]
    blocks = [block.partition("\n")[2].strip().splitlines() for block in section.split("```")[1::2]]
    return next(lines for lines in blocks if any("apply -f examples/ring.yaml" in line for line in lines))


def scenario_readme(kube):
    """The README's block as it stands, where a default StorageClass makes the claim's volume."""
    shutil.rmtree(f"{FOLDERS}/readme", ignore_errors=True)
    os.makedirs(f"{FOLDERS}/readme")
    *lines, last = readme_block()
    expect("what the last line does", last.split()[:2], ["kubectl", "delete"])
    try:
        with kube.namespace("readme") as namespace, tempfile.TemporaryDirectory() as folder:
            kube.apply(DEFAULT_CLASS.replace("PATH", f"{FOLDERS}/readme"), namespace)
            shell = user_shell(kube, namespace, folder)
            watch = subprocess.Popen(shell("until kubectl get vcl/ring 2>/dev/null; do sleep 0.5; done; exec kubectl gridcast status ring -w"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder)
            told = run_lines(shell, lines, folder)
            watch.send_signal(signal.SIGINT)
            seen = watch.communicate(timeout=30)[0]
            for word in ("ring-node-0", "Ready"):
                if word not in seen:
                    raise Failed(f"kubectl gridcast status -w does not show {word}:\n{seen}")
            notes = look_at_the_run(kube, namespace, told, folder)
            run_lines(shell, [last], folder)
            kube.wait("nothing of it is left", lambda: not kube.pods(namespace) and not kube.get("bc", namespace=namespace), 60)
            return notes
    finally:
        kube.kubectl("delete", "storageclass", "readme", "--ignore-not-found")


def user_shell(kube, namespace, folder):
    """A shell of someone who works in this namespace, in a clone."""
    os.symlink(f"{ROOT}/examples", f"{folder}/examples")
    shutil.copy(kube.environment["KUBECONFIG"], f"{folder}/config")
    environment = ["env", f"PATH={kube.environment['PATH']}", f"KUBECONFIG={folder}/config"]
    shell = lambda script: kube.command(*environment, "bash", "-e", "-o", "pipefail", "-c", script)
    subprocess.run(shell(f"kubectl config set-context --current --namespace={namespace}"), check=True, capture_output=True)
    return shell


def run_lines(shell, lines, folder):
    done = subprocess.run(shell("\n".join(lines)), capture_output=True, text=True, timeout=300, cwd=folder)
    if done.returncode != 0:
        raise Failed(f"the README's block: exit code {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def look_at_the_run(kube, namespace, told, folder):
    found = complete(kube, "ring", namespace)
    expect("placement", placed(found), {f"ring-node-{i}": [i] for i in range(4)})
    for word in ("virtualcluster.gridcast.io/ring", "broadcast.gridcast.io/ring-ics", "networkmap.gridcast.io/ring", "ring-node-0", "Ready"):
        if word not in told:
            raise Failed(f"{word} is not to be seen:\n{told}")
    if "<html" not in open(f"{folder}/ring.html", encoding="utf-8").read():
        raise Failed("the report as HTML is no page")
    report = json.load(open(f"{folder}/ring.json", encoding="utf-8"))
    expect("outcome", report["outcome"], "Complete")
    expect("hosts measured", report["network"]["hosts"], [f"ring-node-{i}" for i in range(4)])
    if any(not node["verified"] for node in report["data"][0]["nodes"]):
        raise Failed(f"not verified: {report['data']}")
    check_schema(report)
    original = listing(f"{FOLDERS}/readme")
    for node in {entry["node"] for entry in found["status"]["nodes"]}:
        if on_node(kube, node, f"/var/lib/gridcast/data/{namespace}/ring-ics") != original:
            raise Failed(f"{node} has something else than the volume")
    timeline = report["timeline"]
    return [f"apply to first rank {timeline['firstRank']:.2f} s; timeline {timeline}"]


def scenario_data_from_a_configmap(kube):
    with kube.namespace("configmap") as namespace:
        kube.kubectl("-n", namespace, "create", "configmap", "ics", "--from-literal=a.nml=first", "--from-literal=b.nml=second")
        kube.apply(cluster("ring", RING, spec=data("{configMap: {name: ics}}")), namespace)
        found = complete(kube, "ring", namespace)
        expect("files", kube.get("bc", "ring-ics", namespace)["status"]["files"], 2)
        node = found["status"]["nodes"][0]["node"]
        told = kube.node("exec", node.removeprefix("n"), "cat", f"/var/lib/gridcast/data/{namespace}/ring-ics/b.nml").stdout
        expect("b.nml", told, "second")


def scenario_data_from_http(kube):
    with kube.namespace("http") as namespace:
        weights = "mkdir -p /tmp/www && head -c 1048576 /dev/urandom > /tmp/www/weights.bin && cd /tmp/www && sha256sum weights.bin && exec httpd -f -p 8080"
        kube.apply(web_server(weights, "/weights.bin"), namespace)
        kube.kubectl("-n", namespace, "wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
        digest = kube.kubectl("-n", namespace, "logs", "web").split()[0]
        url = f"http://web.{namespace}.svc/weights.bin"
        kube.apply(cluster("ring", RING, spec=data(f"{{http: {{url: '{url}'}}}}")), namespace)
        found = complete(kube, "ring", namespace)
        status = kube.get("bc", "ring-ics", namespace)["status"]
        if status["sourceBytesRead"] > 1.05 * status["sizeBytes"]:
            raise Failed(f"the origin was read more than once: {status['sourceBytesRead']} of {status['sizeBytes']} bytes")
        for node in {entry["node"] for entry in found["status"]["nodes"]}:
            path = f"/var/lib/gridcast/data/{namespace}/ring-ics/weights.bin"
            expect(f"sha256 on {node}", kube.node("exec", node.removeprefix("n"), "sha256sum", path).stdout.split()[0], digest)


def scenario_data_from_a_node(kube):
    with kube.namespace("node") as namespace:
        dataset(f"{FOLDERS}/node")
        source = f"{{node: {{path: {FOLDERS}/node, name: n2}}}}"
        kube.apply(cluster("ring", RING, spec=data(source)), namespace)
        complete(kube, "ring", namespace)
        kube.apply(cluster("secrets", RING, spec=data("{node: {path: /etc/kubernetes, name: n2}}")), namespace)
        kube.wait_condition("bc", "secrets-ics", namespace, "Ready", "False", message="sourceDirectories|source-root", timeout=30)


def scenario_sedov_with_collected_output(kube):
    with kube.namespace("sedov") as namespace:
        for claim in ("programs", "results"):
            shutil.rmtree(f"{FOLDERS}/{claim}", ignore_errors=True)
        os.makedirs(f"{FOLDERS}/programs")
        shutil.copy(f"{ROOT}/examples/sedov/sedov", f"{FOLDERS}/programs/sedov")
        kube.volume(namespace, "programs", f"{FOLDERS}/programs")
        kube.volume(namespace, "results", f"{FOLDERS}/results")
        os.chmod(f"{FOLDERS}/results", 0o777)
        kube.kubectl("-n", namespace, "apply", "-f", "examples/sedov.yaml")
        complete(kube, "sedov", namespace, timeout=120)
        collected = sorted(os.listdir(f"{FOLDERS}/results/output_00002"))
        if len(collected) < 4:
            raise Failed(f"collected only {collected}")
        judge = (
            "import sys; sys.path.insert(0, 'examples/sedov'); from outputs import Output, self_similar_radius; output = Output(sys.argv[1]);"
            "ratio = output.shock_radius() / self_similar_radius(output.info['time']); print(f'shock radius {ratio:.4f} of the exact one');"
            "sys.exit(not 0.95 < ratio < 1.05)"
        )
        check = subprocess.run(
            ["/usr/bin/python3", "-B", "-c", judge, f"{FOLDERS}/results/output_00002"], cwd=ROOT, capture_output=True, text=True
        )
        if check.returncode != 0:
            raise Failed(f"the collected output is not right: {check.stderr or check.stdout}")
        return [f"{len(collected)} files collected", *check.stdout.strip().splitlines()[-1:]]


def scenario_two_groups_with_different_slots(kube):
    with kube.namespace("groups") as namespace:
        kube.apply(cluster("pair", ["examples/ring/ring", "-n", "10", "-m", "4096"], groups=[("thin", 2, 1), ("fat", 1, 2)]), namespace)
        found = complete(kube, "pair", namespace)
        expect("placement", placed(found), {"pair-thin-0": [0], "pair-thin-1": [1], "pair-fat-0": [2, 3]})
        record = kube.get("configmap", "pair-machinefile", namespace)["data"]["machinefile"]
        expect("machinefile", record.splitlines(), ["pair-thin-0 slots=1 max_slots=1", "pair-thin-1 slots=1 max_slots=1", "pair-fat-0 slots=2 max_slots=2"])


def scenario_200_mib_of_shared_memory(kube):
    with kube.namespace("shm") as namespace:
        script = "dd if=/dev/zero of=/dev/shm/block bs=1M count=200 2>&1 && df -m /dev/shm | tail -n 1"
        pod = "resources: {limits: {memory: 1Gi}, requests: {memory: 64Mi}}"
        kube.apply(cluster("shm", ["sh", "-c", script], pod=pod, groups=[("node", 1, 1)]), namespace)
        complete(kube, "shm", namespace)
        tail = kube.get("vcl", "shm", namespace)["status"]["run"]["logTail"]
        if "209715200 bytes" not in tail:
            raise Failed(f"dd said: {tail}")


def scenario_non_root_and_read_only_under_restricted(kube):
    with kube.namespace("restricted", {"pod-security.kubernetes.io/enforce": "restricted"}) as namespace:
        kube.kubectl("-n", namespace, "create", "configmap", "ics", "--from-literal=a=1")
        text = cluster(
            "ring", RING, spec=data("{configMap: {name: ics}}"),
            pod="securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}",
        ).replace(
            "        containers:",
            "        securityContext: {runAsNonRoot: true, runAsUser: 71234, seccompProfile: {type: RuntimeDefault}}\n        containers:",
        )
        kube.apply(text, namespace)
        complete(kube, "ring", namespace)


def scenario_mpich(kube):
    with kube.namespace("mpich") as namespace:
        kube.kubectl("-n", namespace, "create", "configmap", "ics", "--from-literal=a=1")
        kube.apply(
            cluster("ring", RING, image="registry.example/sl-mpich:9", implementation="MPICH", spec=data("{configMap: {name: ics}}")), namespace
        )
        expect("placement", placed(complete(kube, "ring", namespace)), {f"ring-node-{i}": [i] for i in range(3)})


def scenario_two_clusters_at_once(kube):
    with kube.namespace("two") as namespace:
        for name in ("a", "b"):
            kube.kubectl("-n", namespace, "create", "configmap", name, f"--from-literal=who={name}")
            kube.apply(cluster(name, RING, spec=data(f"{{configMap: {{name: {name}}}}}")), namespace)
        for name in ("a", "b"):
            expect("placement", placed(complete(kube, name, namespace)), {f"{name}-node-{i}": [i] for i in range(3)})


def scenario_environment_reaches_every_rank(kube):
    with kube.namespace("environment") as namespace:
        script = 'echo "rank $OMPI_COMM_WORLD_RANK says $GREETING"'
        kube.apply(cluster("env", ["sh", "-c", script], run="environment: [{name: GREETING, value: 'good day'}]"), namespace)
        complete(kube, "env", namespace)
        tail = kube.get("vcl", "env", namespace)["status"]["run"]["logTail"]
        for rank in range(3):
            if f"rank {rank} says good day" not in tail:
                raise Failed(f"rank {rank} did not have it: {tail}")
        logs = kube.kubectl("-n", namespace, "logs", "env-node-0", "-c", "node", check=False)
        if logs and "says good day" not in logs:
            raise Failed(f"kubectl logs of the first node: {logs}")
