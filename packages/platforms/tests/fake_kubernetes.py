"""Kubernetes cluster for tests: a real API server on loopback, whose pods are real subprocesses.

The server implements the part of the API that launches use: Jobs of batch/v1 (create, also as a dry run, read, patch,
delete), pods and their logs, events, nodes, Secrets, and access reviews. Its scheduler supports GPUs, labels, and
taints; its Job controller supports Indexed Jobs without retries. `kubeconfig` writes the file with which clients sign
in.

In tests: `with running() as cluster: ...`.
"""

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fake_kubernetes_pods import GPU, Job, Json, Node, Pod

from tests.fakes.loopback import Handler, LoopbackFake, Server, served

TOKEN = "token-of-tests"


class Refused(Exception):
    """Error response."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class FakeKubernetes(LoopbackFake):
    """Server. `environment` contains the variables of every container in addition to the pod's own, for its account.

    `hurry`: a time limit of N seconds ends after N * `hurry`. `denied` are rights as (resource, verb). `forbids` is the
    reason why no pod may be created. `unknown_fields` are those of a Job's `spec` that this release lacks. `images` are
    those that can be pulled, None for all. `requests` are the received ones.
    """

    def __init__(self, *, environment: Mapping[str, str] | None = None, hurry: float = 1.0, grace: float = 5.0) -> None:
        self.environment, self.hurry, self.grace = dict(environment or {}), hurry, grace
        self.nodes = [Node()]
        self.namespaces = {"default"}
        self.secrets: dict[tuple[str, str], dict[str, str]] = {}
        self.images: set[str] | None = None
        self.denied: set[tuple[str, str]] = set()
        self.forbids = ""
        self.unknown_fields: set[str] = set()
        self.jobs: dict[tuple[str, str], Job] = {}
        self.requests: list[tuple[str, str, Mapping[str, str], Json]] = []
        self.lock = threading.RLock()
        self._server = Server(_Handler, self)

    def kubeconfig(self, path: Path, namespace: str = "default") -> Path:
        """Write a kubeconfig with the context `tests`."""
        value = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "tests",
            "clusters": [{"name": "fake", "cluster": {"server": self.url}}],
            "users": [{"name": "tester", "user": {"token": TOKEN}}],
            "contexts": [
                {"name": "tests", "context": {"cluster": "fake", "user": "tester", "namespace": namespace}},
            ],
        }
        path.write_text(json.dumps(value))
        return path

    def used(self, node: Node) -> int:
        """Return the number of GPUs of a node in use by running pods."""
        pods = [pod for job in self.jobs.values() for pod in job.pods if pod.node is node and not pod.over.is_set()]
        return sum(int(pod.job.container.get("resources", {}).get("limits", {}).get(GPU, 0)) for pod in pods)

    def variables(self, namespace: str, env: Sequence[Json]) -> dict[str, str]:
        """Return a container's variables with the values of its Secrets. Raises `KeyError`."""
        found = {}
        for one in env:
            reference = one.get("valueFrom", {}).get("secretKeyRef")
            if reference and (namespace, reference["name"]) not in self.secrets:
                raise KeyError(reference["name"])
            found[one["name"]] = (
                self.secrets[namespace, reference["name"]][reference["key"]] if reference else one["value"]
            )
        return found

    def close(self) -> None:
        """Close all sockets and end every container."""
        super().close()
        for job in self.jobs.values():
            for pod in job.pods:
                pod.over.set()
                if pod.container is not None:
                    pod.container.remove()

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Json) -> Json:
        """Raise `Refused` for an error."""
        self.requests.append((method, path, query, body))
        parts = path.strip("/").split("/")
        if path.endswith("/selfsubjectaccessreviews"):
            asked = body["spec"]["resourceAttributes"]
            resource = "/".join(filter(None, (asked["resource"], asked.get("subresource"))))
            return {
                "kind": "SelfSubjectAccessReview",
                "status": {"allowed": (resource, asked["verb"]) not in self.denied},
            }
        if parts == ["api", "v1", "nodes"]:
            self._allow("nodes", "list")
            return {"kind": "NodeList", "items": [node.json() for node in self.nodes]}
        if parts == ["api", "v1", "namespaces"]:
            self.namespaces.add(body["metadata"]["name"])
            return {"kind": "Namespace", **body}
        place = parts.index("namespaces")
        namespace, resource, *name = parts[place + 1 :]
        if resource == "jobs":
            return self._job(method, namespace, name[0] if name else "", query, body)
        if resource == "pods":
            self._allow("pods", "list")
            wanted = query["labelSelector"].partition("=")[2]
            job = self.jobs.get((namespace, wanted))
            return {"kind": "PodList", "items": [pod.json() for pod in job.pods] if job else []}
        if resource == "events":
            return {"kind": "EventList", "items": [{"message": self.forbids}] if self.forbids else []}
        if resource == "secrets" and method == "POST":
            self.secrets[namespace, body["metadata"]["name"]] = body["stringData"]
            return {"kind": "Secret", "metadata": body["metadata"]}
        if resource == "secrets":
            self._allow("secrets", "get")
            if (namespace, name[0]) not in self.secrets:
                raise Refused(404, f'secrets "{name[0]}" not found')
            return {"kind": "Secret", "data": dict.fromkeys(self.secrets[namespace, name[0]], "")}
        raise Refused(404, f"the server could not find the requested resource {path}")

    def log(self, namespace: str, name: str) -> Pod:
        """Return the pod whose log is requested."""
        self._allow("pods/log", "get")
        pods = [pod for job in self.jobs.values() for pod in job.pods if pod.name == name]
        if not pods or pods[0].job.namespace != namespace:
            raise Refused(404, f'pods "{name}" not found')
        return pods[0]

    def _job(self, method: str, namespace: str, name: str, query: Mapping[str, str], body: Json) -> Json:
        verb = {"POST": "create", "GET": "get", "PATCH": "patch", "DELETE": "delete"}[method]
        self._allow("jobs", verb)
        if verb == "create":
            return self._create(namespace, query, body)
        job = self.jobs.get((namespace, name))
        if job is None:
            raise Refused(404, f'jobs.batch "{name}" not found')
        if verb == "patch":
            job.patch(body)
        elif verb == "delete":
            for pod in self.jobs.pop((namespace, name)).pods:
                pod.stop()
        return job.json()

    def _create(self, namespace: str, query: Mapping[str, str], body: Json) -> Json:
        if namespace not in self.namespaces:
            raise Refused(404, f'namespaces "{namespace}" not found')
        if unknown := sorted(self.unknown_fields & set(body["spec"])):
            raise Refused(400, f'strict decoding error: unknown field "spec.{unknown[0]}"')
        name = body["metadata"]["name"]
        if (namespace, name) in self.jobs:
            raise Refused(409, f'jobs.batch "{name}" already exists')
        if query.get("dryRun") == "All":
            return {"kind": "Job", **body}
        with self.lock:
            self.jobs[namespace, name] = job = Job(self, namespace, body)
        return job.json()

    def _allow(self, resource: str, verb: str) -> None:
        if (resource, verb) in self.denied:
            raise Refused(403, f'{resource} is forbidden: User "tester" cannot {verb} resource "{resource}"')


class _Handler(Handler):
    server: Server[FakeKubernetes]

    def reply(self) -> None:
        method, path, query, body = self.json_request()
        fake = self.server.fake
        try:
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                raise Refused(401, "Unauthorized")
            if path.endswith("/log"):
                words = path.strip("/").split("/")
                self._send_log(fake.log(words[3], words[5]), query)
                return
            code, answer = 200, fake.answer(method, path, query, body)
        except Refused as refused:
            code, answer = refused.code, {"kind": "Status", "code": refused.code, "message": refused.message}
        self.send_json(code, answer)

    def _send_log(self, pod: Pod, query: Mapping[str, str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        lines = pod.lines()
        sent = max(0, len(lines) - int(query["tailLines"])) if "tailLines" in query else 0
        while True:
            over = pod.phase != "Running"  # before the log is read, so that its end is sent, too
            lines = pod.lines()
            data = "".join(f"{line}\n" for line in lines[sent:]).encode()
            sent = len(lines)
            if data:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            if over or query.get("follow", "").lower() != "true":
                break
            time.sleep(0.02)
        self.wfile.write(b"0\r\n\r\n")


@contextlib.contextmanager
def running(
    *, environment: Mapping[str, str] | None = None, hurry: float = 1.0, grace: float = 5.0
) -> Iterator[FakeKubernetes]:
    """Serve in a thread of this process; the server and all containers end with the block."""
    with served(FakeKubernetes(environment=environment, hurry=hurry, grace=grace)) as cluster:
        yield cluster
