"""The stand-in is worth what its rules are: JSON Patch by the document's own examples, and Istio's weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.deploy import json_patch
from tests.deploy.api_server import ApiServer, Rejected, api_server
from tests.deploy.json_patch import PatchError, apply

# RFC 6902, appendix A, and JSON Pointer's escapes (RFC 6901, section 3).
EXAMPLES = {
    "A.1": ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
    "A.2": ({"foo": ["a", "b"]}, [{"op": "add", "path": "/foo/1", "value": "q"}], {"foo": ["a", "q", "b"]}),
    "A.3": ({"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
    "A.4": ({"foo": ["a", "q", "b"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["a", "b"]}),
    "A.5": (
        {"baz": "qux", "foo": "bar"},
        [{"op": "replace", "path": "/baz", "value": 1}],
        {"baz": 1, "foo": "bar"},
    ),
    "A.6": (
        {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
        [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
        {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
    ),
    "A.7": (
        {"foo": ["all", "grass", "cows", "eat"]},
        [{"op": "move", "from": "/foo/1", "path": "/foo/3"}],
        {"foo": ["all", "cows", "eat", "grass"]},
    ),
    "A.8": (
        {"baz": "qux", "foo": ["a", 2, "c"]},
        [{"op": "test", "path": "/baz", "value": "qux"}, {"op": "test", "path": "/foo/1", "value": 2}],
        {"baz": "qux", "foo": ["a", 2, "c"]},
    ),
    "A.10": (
        {"foo": "bar"},
        [{"op": "add", "path": "/child", "value": {"grandchild": {}}}],
        {"foo": "bar", "child": {"grandchild": {}}},
    ),
    "A.11": (
        {"foo": "bar"},
        [{"op": "add", "path": "/baz", "value": "qux", "xyz": 123}],
        {"foo": "bar", "baz": "qux"},
    ),
    "A.14": ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
    "A.16": (
        {"foo": ["bar"]},
        [{"op": "add", "path": "/foo/-", "value": ["abc", "def"]}],
        {"foo": ["bar", ["abc", "def"]]},
    ),
    "4.1": ({"a": {"foo": 1}}, [{"op": "add", "path": "/a/foo", "value": 2}], {"a": {"foo": 2}}),
    "copy": ({"a": [1]}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": [1], "b": [1]}),
    "all": ({"a": 1}, [{"op": "replace", "path": "", "value": [2]}], [2]),
}
FAILING: dict[str, tuple[Any, Any]] = {
    "A.9": ({"baz": "qux"}, [{"op": "test", "path": "/baz", "value": "bar"}]),
    "A.12": ({"foo": "bar"}, [{"op": "add", "path": "/baz/bat", "value": "qux"}]),
    "A.15": ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": "10"}]),
    "beyond": ({"a": [1]}, [{"op": "add", "path": "/a/2", "value": 1}]),
    "zeros": ({"a": [1, 2]}, [{"op": "test", "path": "/a/01", "value": 2}]),
    "nothing to replace": ({"a": 1}, [{"op": "replace", "path": "/b", "value": 1}]),
    "nothing to remove": ({"a": 1}, [{"op": "remove", "path": "/b"}]),
    "true is no number": ({"a": True}, [{"op": "test", "path": "/a", "value": 1}]),
    "into itself": ({"a": {"b": 1}}, [{"op": "move", "from": "/a", "path": "/a/b"}]),
    "no value": ({"a": 1}, [{"op": "add", "path": "/b"}]),
    "no operation": ({"a": 1}, [{"op": "swap", "path": "/a"}]),
    "no list": ({"a": 1}, {"a": 2}),
    "no pointer": ({"a": 1}, [{"op": "test", "path": "a", "value": 1}]),
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("a/~", max_size=2), inner, max_size=3),
)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_of_the_document(name: str) -> None:
    before, patch, after = EXAMPLES[name]
    assert apply(before, patch) == after


@pytest.mark.parametrize("name", FAILING)
def test_what_the_document_calls_an_error_changes_nothing(name: str) -> None:
    before, patch = FAILING[name]
    with pytest.raises(PatchError):
        apply(before, patch)
    if isinstance(patch, list):
        with pytest.raises(PatchError):
            apply(before, [{"op": "add", "path": "/first", "value": 1}, *patch])
        assert "first" not in before


@given(JSON, JSON)
def test_equal_is_equal_and_nothing_else(a: Any, b: Any) -> None:
    assert apply(a, [{"op": "test", "path": "", "value": a}]) == a
    if repr(a) != repr(b) and a != b:
        assert not json_patch.same(a, b)


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with api_server() as made:
        made.put(service(95, 5))
        yield made


def service(*weights: Any) -> dict[str, Any]:
    route = [{"destination": {"host": "h"}, "weight": w} for w in weights]
    return {"metadata": {"name": "vs", "namespace": "default"}, "spec": {"http": [{"route": route}]}}


@pytest.mark.parametrize(
    ("weights", "status"), [((96, 5), 400), ((101, -1), 400), ((95.0, 5), 422), (("95", 5), 422)]
)
def test_weights_that_istio_does_not_take(server: ApiServer, weights: Any, status: int) -> None:
    with pytest.raises(Rejected) as refused:
        server.put(service(*weights))
    assert refused.value.status == status
    assert len(server.history["default", "vs"]) == 1


def test_a_stale_version_is_a_conflict(server: ApiServer) -> None:
    stale = server.get("default", "vs")
    server.put(stale)
    with pytest.raises(Rejected) as refused:
        server.put(stale)
    assert refused.value.status == 409


def test_patches_need_their_own_content_type(server: ApiServer) -> None:
    patch = b'[{"op": "test", "path": "/metadata/name", "value": "vs"}]'
    for kind, status in (("application/json", 415), ("application/merge-patch+json", 400)):
        with pytest.raises(Rejected) as refused:
            server.patch("default", "vs", kind, patch)
        assert refused.value.status == status
    assert server.patch("default", "vs", "application/json-patch+json", patch)["metadata"]["name"] == "vs"


def test_a_kubeconfig_leads_to_it(server: ApiServer, tmp_path: Path) -> None:
    assert server.url in server.kubeconfig(tmp_path).read_text()
