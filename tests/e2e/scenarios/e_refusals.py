"""What is refused: foreign pods by TLS, manifests by the API server."""

import re

from kubernetes import SYSTEM, Failed, cluster
from refused import BROADCAST, CHANGES, DATA, FREED, LONG_NAME, MAP, PAIR, REFUSED, SMALL, THERE, TWO
from shared import expect

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
            done = kube.run("kubectl", "-n", foreign, "exec", "other-node-0", "-c", "node", "--", "bash", "-c", probe, check=False)
            # The port is open, and at most a TLS alert comes back.
            if not done.stdout.strip():
                raise Failed(f"the {what} could not be tried: {done.stderr.strip()}")
            if int(done.stdout) > 64:
                raise Failed(f"the {what} answered without TLS: {done.stdout} bytes")
        policy = kube.get("networkpolicy", None, victim)
        expect("network policies of the cluster", len(policy), 1)


PATHS = {"VirtualCluster": "virtualclusters", "Broadcast": "broadcasts", "NetworkMap": "networkmaps"}


def rules(kube):
    """Every rule of the installed definitions: kind, field, and the beginning of its message."""

    def walk(kind, schema, path):
        for rule in schema.get("x-kubernetes-validations", []):
            # A message that is computed begins with a text.
            message = rule.get("message") or rule["messageExpression"].split("'")[1].split("%")[0]
            yield kind, path + rule.get("fieldPath", ""), message
        for name, below in schema.get("properties", {}).items():
            yield from walk(kind, below, f"{path}.{name}")
        if isinstance(schema.get("items"), dict):
            yield from walk(kind, schema["items"], f"{path}[]")

    for definition in kube.get("crd"):
        if definition["spec"]["group"] == "gridcast.io":
            yield from walk(definition["spec"]["names"]["kind"], definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "")


def tried(answer):
    """What an answer says of which field of which kind."""
    details = answer.get("details", {})
    for cause in details.get("causes", []):
        yield details["kind"], re.sub(r"\[\d+\]", "[]", f".{cause.get('field', '')}"), cause["message"]


class Refusals:
    """Asks the API server in a dry run, and keeps what is wrong with its answers."""

    def __init__(self, api, namespace):
        self.api, self.base = api, f"/apis/gridcast.io/v1alpha1/namespaces/{namespace}"
        self.problems, self.seen = [], set()

    def create(self, text, query="?dryRun=All&fieldValidation=Strict"):
        kind = text.split("kind: ")[1].split()[0]
        return self.api.ask("POST", f"{self.base}/{PATHS[kind]}{query}", text, "application/yaml")

    def change(self, path, spec):
        return self.api.ask("PATCH", f"{self.base}/{path}?dryRun=All&fieldValidation=Strict", {"spec": spec}, "application/merge-patch+json")

    def accepted(self, what, reply):
        if reply[0] >= 300:
            self.problems.append(f"refused: {what}: {reply[1]['message']}")

    def refused(self, what, reply, message):
        code, answer = reply
        if code < 300:
            self.problems.append(f"accepted: {what}")
            return
        self.seen.update(tried(answer))
        if not re.search(message, answer["message"]):
            self.problems.append(f"{what}: not {message!r} but: {answer['message']}")

    def untried(self, all_rules):
        hit = lambda rule: any((kind, field) == rule[:2] and rule[2] in message for kind, field, message in self.seen)
        return [f"no manifest tries the rule of {kind}{field}: {message}" for kind, field, message in all_rules if not hit((kind, field, message))]


def scenario_manifests_that_the_api_server_refuses(kube):
    """The table, and that no rule of the definitions is missing in it."""
    with kube.api() as api, kube.namespace("refused") as namespace:
        asked = Refusals(api, namespace)
        for text in (SMALL, DATA, TWO, PAIR, LONG_NAME, BROADCAST, MAP):
            asked.accepted("the original", asked.create(text))
        for text, old, new, message in REFUSED:
            if old not in text:
                asked.problems.append(f"{old!r} is not in the manifest")
            asked.refused(repr(new), asked.create(text.replace(old, new, 1)), message)
        for text in (text for texts in THERE.values() for text in texts):
            asked.accepted("what is to be changed", asked.create(text, ""))
        for path, spec, message in CHANGES:
            asked.refused(f"{path}: {spec}", asked.change(path, spec), message)
        api.patch(f"{asked.base}/virtualclusters/plain", {"spec": {"suspend": True}})
        for path, spec in FREED:
            reply = asked.change(path, spec)
            if "except while" in str(reply[1].get("message")):
                asked.problems.append(f"refused of a suspended cluster: {spec}: {reply[1]['message']}")
        all_rules = list(rules(kube))
        asked.problems += asked.untried(all_rules)
        # kubectl says the same.
        text = SMALL.replace("processes: 4", "processes: 5")
        done = kube.run("kubectl", "-n", namespace, "apply", "--dry-run=server", "-f", "-", stdin=text, check=False)
        if "5 processes on 4 slots" not in done.stderr:
            asked.problems.append(f"kubectl: {done.stderr}")
        if asked.problems:
            raise Failed("\n".join(asked.problems))
        return [f"{len(REFUSED)} manifests and {len(CHANGES)} changes refused; they try all {len(all_rules)} rules"]
