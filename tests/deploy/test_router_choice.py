"""Routers by name, and the manifests that Istio's starts from."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from td_loop.cli import main
from td_loop.deploy.routing.choose import KINDS, open_router
from td_loop.deploy.routing.contract import RouterError
from td_loop.deploy.routing.istio import Target
from td_loop.deploy.routing.istio_api import open_istio
from td_loop.errors import UsageError
from tests.deploy.api_server import api_server

Json = dict[str, Any]


def test_the_embedded_router_of_a_folder(tmp_path: Path) -> None:
    router = open_router("embedded", {"dir": str(tmp_path), "name": None})
    assert router.set(5.0) == 5.0
    router.close()


def test_the_envoy_of_a_folder(tmp_path: Path) -> None:
    router = open_router("envoy", {"dir": str(tmp_path)})
    with pytest.raises(RouterError, match=f"no Envoy runs in {tmp_path / 'envoy'}"):
        router.read()
    router.close()


def test_the_router_of_a_cluster_goes_by_written_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with api_server() as server:
        for item in manifests(capsys, "--namespace", "rl", "--name", "mine", "--service", "infer"):
            if item["kind"] == "VirtualService":
                server.put(item)
        options = {
            "name": "mine",
            "namespace": "rl",
            "service": "infer",
            "kubeconfig": server.kubeconfig(tmp_path),
        }
        router = open_router("istio", json.loads(json.dumps(options, default=str)))
        assert router.set(5.0) == 5.0
        router.close()


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        ("nginx", {}, "embedded, envoy, istio"),
        ("embedded", {"dir": "x", "namespace": "rl"}, "no option namespace; it has dir"),
        ("istio", {"dir": "x"}, "no option dir"),
        ("envoy", {}, "needs the server's folder"),
    ],
)
def test_what_makes_no_sense_is_refused(kind: str, options: Json, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        open_router(kind, options)


def test_a_folder_that_is_something_else(tmp_path: Path) -> None:
    (tmp_path / "traffic").write_text("cars")
    with pytest.raises(RouterError, match="is not a traffic file"):
        open_router("embedded", {"dir": str(tmp_path)})


def test_all_kinds_open_without_what_the_others_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    monkeypatch.setitem(sys.modules, "envoy", None)
    for kind in KINDS[:2]:
        open_router(kind, {"dir": str(tmp_path)}).close()
    with pytest.raises(UsageError, match="deploy-istio"):
        open_istio(Target())


def manifests(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[Json]:
    needed = ["--image", "registry/rl:1", "--stable", "/models/a.onnx", "--canary", "/models/b.onnx"]
    assert main(["deploy", "manifests", *needed, *arguments]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert (listed["apiVersion"], listed["kind"]) == ("v1", "List")
    items: list[Json] = listed["items"]
    return items


def test_manifests_fit_together(capsys: pytest.CaptureFixture[str]) -> None:
    items = manifests(
        capsys, "--namespace", "rl", "--host", "a.internal", "--host", "b.internal", "--api", "v1beta1"
    )
    assert {item["metadata"]["namespace"] for item in items} == {"rl"}
    by_kind: dict[str, list[Json]] = {}
    for item in items:
        by_kind.setdefault(item["kind"], []).append(item)
    [service], [rule], [routing] = by_kind["Service"], by_kind["DestinationRule"], by_kind["VirtualService"]
    assert routing["apiVersion"] == rule["apiVersion"] == "networking.istio.io/v1beta1"
    assert routing["spec"]["hosts"] == ["a.internal", "b.internal"]
    subsets = {subset["name"]: subset["labels"] for subset in rule["spec"]["subsets"]}
    for http in routing["spec"]["http"]:
        assert sum(entry["weight"] for entry in http["route"]) == 100
        for entry in http["route"]:
            assert entry["destination"]["host"] == rule["spec"]["host"] == service["metadata"]["name"]
            assert entry["destination"]["subset"] in subsets
            if http["match"][0]["uri"]["exact"] == "/v1/decide":
                assert entry["weight"] == (100 if entry["destination"]["subset"] == "stable" else 0)
    for name, labels in subsets.items():
        [pods] = [d["spec"]["template"] for d in by_kind["Deployment"] if d["metadata"]["name"].endswith(name)]
        assert labels.items() <= pods["metadata"]["labels"].items()
        assert service["spec"]["selector"].items() <= pods["metadata"]["labels"].items()
        [container] = pods["spec"]["containers"]
        assert ("/models/b.onnx" in container["args"]) == (name == "canary")


def test_manifests_into_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rl.json"
    needed = ["--image", "i", "--stable", "a", "--canary", "b", "--out", str(file)]
    assert main(["deploy", "manifests", *needed]) == 0
    assert f"kubectl apply -f {file}" in capsys.readouterr().out
    assert len(json.loads(file.read_text())["items"]) == 5
