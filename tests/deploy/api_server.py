"""A stand-in for a Kubernetes API server that serves Istio's VirtualServices, with the rules that bite.

What it enforces: paths (404), a bearer token (401), content types of patches (415), JSON Patch all or nothing with
`test` (422), merge patches (RFC 7386), optimistic concurrency by resourceVersion (409), immutable names (422), and
what Istio's admission webhook says of weights: whole numbers 0..100 that add up to 100 (400).
"""

from __future__ import annotations

import contextlib
import copy
import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.deploy import json_patch

Json = dict[str, Any]
TOKEN = "let-me-in"
_PATH = re.compile(
    r"/apis/networking\.istio\.io/(v1|v1beta1|v1alpha3)/namespaces/([^/]+)/virtualservices/([^/?]+)"
)
_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    415: "UnsupportedMediaType",
    422: "Invalid",
    500: "InternalError",
    503: "ServiceUnavailable",
}


class Rejected(Exception):
    """An answer that is no 200."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ApiServer:
    """Objects by namespace and name, and what was asked for."""

    def __init__(self) -> None:
        self.history: dict[tuple[str, str], list[Json]] = {}
        """Every version that each object had."""
        self.before_patch: list[Callable[[], None]] = []
        """What happens right before the next patches are applied, one each: somebody else's edits, say."""
        self.fail_next: list[int] = []
        """Statuses that the next requests are answered with, one each."""
        self.patches: list[list[Json]] = []
        """Bodies of the patches that were asked for."""
        self._lock = threading.RLock()
        self._version = 0
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.api = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def kubeconfig(self, folder: Path, token: str = TOKEN) -> Path:
        """A file as `kubectl` reads it."""
        file = folder / "kubeconfig"
        named = {"clusters": {"cluster": {"server": self.url}}, "users": {"user": {"token": token}}}
        content: Json = {kind: [{"name": "here", **entry}] for kind, entry in named.items()}
        content |= {"contexts": [{"name": "here", "context": {"cluster": "here", "user": "here"}}]}
        content |= {"apiVersion": "v1", "kind": "Config", "current-context": "here"}
        file.write_text(json.dumps(content))
        return file

    def put(self, manifest: Json) -> None:
        """As `kubectl apply` of a new object, or somebody's edit of an old one."""
        with self._lock:
            key = (manifest["metadata"]["namespace"], manifest["metadata"]["name"])
            self._store(key, copy.deepcopy(manifest))

    def edit(self, name: str, change: Callable[[Json], None], namespace: str = "default") -> None:
        """Somebody's `kubectl edit`."""
        with self._lock:
            found = self.get(namespace, name)
            change(found)
            self.put(found)

    def get(self, namespace: str, name: str) -> Json:
        with self._lock:
            versions = self.history.get((namespace, name))
            if not versions:
                raise Rejected(404, f'virtualservices.networking.istio.io "{name}" not found')
            return copy.deepcopy(versions[-1])

    def patch(self, namespace: str, name: str, kind: str, body: bytes) -> Json:
        if kind not in ("application/json-patch+json", "application/merge-patch+json"):
            raise Rejected(
                415, "the body of the request was in an unknown format - accepted media types include: ..."
            )
        try:
            change = json.loads(body)
        except ValueError as e:
            raise Rejected(400, f"error decoding patch: {e}") from e
        self.patches.append(change)
        if self.before_patch:
            self.before_patch.pop(0)()
        with self._lock:
            before = self.get(namespace, name)
            if kind == "application/merge-patch+json":
                if not isinstance(change, dict):
                    raise Rejected(
                        400, "json: cannot unmarshal array into Go value of type map[string]interface {}"
                    )
                after = _merged(before, change)
            else:
                try:
                    after = json_patch.apply(before, change)
                except json_patch.PatchError as e:
                    raise Rejected(
                        422, f"the server rejected our request due to an error in our request: {e}"
                    ) from e
            return self._store((namespace, name), after)

    def _store(self, key: tuple[str, str], manifest: Json) -> Json:
        metadata = manifest.get("metadata", {})
        if (metadata.get("namespace"), metadata.get("name")) != key:
            raise Rejected(422, "metadata.name: Invalid value: field is immutable")
        versions = self.history.setdefault(key, [])
        expected = metadata.get("resourceVersion")
        if expected and versions and expected != versions[-1]["metadata"]["resourceVersion"]:
            raise Rejected(409, "the object has been modified; please apply your changes to the latest version")
        admit(manifest)
        self._version += 1
        metadata["resourceVersion"] = str(self._version)
        versions.append(manifest)
        return copy.deepcopy(manifest)


def admit(manifest: Json) -> None:
    """What `validation.istio.io` says of the weights of http routes."""
    for http in manifest.get("spec", {}).get("http", []):
        weights = [entry.get("weight", 0) for entry in http.get("route", [])]
        wrong = [w for w in weights if isinstance(w, bool) or not isinstance(w, int)]
        if wrong:
            raise Rejected(422, f"spec.http.route.weight: Invalid value: {wrong[0]!r}: must be of type integer")
        said = [f"percentage {w} is not in range 0..100" for w in weights if not 0 <= w <= 100]
        if len(weights) > 1 and sum(weights) != 100:
            said.append(f"total destination weight {sum(weights)} != 100")
        if said:
            denied = 'admission webhook "validation.istio.io" denied the request: configuration is invalid: '
            raise Rejected(400, denied + "; ".join(said))


def _merged(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    out = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = _merged(out.get(key), value)
    return out


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    api: ApiServer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer(lambda namespace, name, _: self.server.api.get(namespace, name))

    def do_PATCH(self) -> None:
        kind = self.headers.get("content-type", "").partition(";")[0].strip()
        self._answer(lambda namespace, name, body: self.server.api.patch(namespace, name, kind, body))

    def _answer(self, work: Callable[[str, str, bytes], Json]) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        try:
            if self.headers.get("authorization") != f"Bearer {TOKEN}":
                raise Rejected(401, "Unauthorized")
            if self.server.api.fail_next:
                status = self.server.api.fail_next.pop(0)
                raise Rejected(status, f"made to fail with {status}")
            if (match := _PATH.fullmatch(self.path.partition("?")[0])) is None:
                raise Rejected(404, "the server could not find the requested resource")
            status, answer = 200, work(match[2], match[3], body)
            answer["apiVersion"] = f"networking.istio.io/{match[1]}"
        except Rejected as e:
            status = e.status
            answer = {"kind": "Status", "status": "Failure", "message": str(e), "reason": _REASONS[status]}
            answer["code"] = status
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextlib.contextmanager
def api_server() -> Iterator[ApiServer]:
    server = ApiServer()
    try:
        yield server
    finally:
        server.close()
