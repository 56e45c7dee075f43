from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop.guard.record import MAX_LINE, BadLine, Record, encode, parse

names = st.text(min_size=1).filter(lambda s: s not in {"step", "attempt", "time", "checkpoint", "initial"})
records = st.builds(
    Record,
    step=st.integers(0, 2**53),
    values=st.dictionaries(names, st.floats(), max_size=6),
    attempt=st.none() | st.integers(0, 100),
    time=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    checkpoint=st.none() | st.text(min_size=1),
    initial=st.booleans(),
)


@given(records)
def test_a_line_is_read_as_it_was_written(record: Record) -> None:
    line = encode(record)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert repr(parse(line)) == repr(record)  # repr: NaN is not equal to itself


def test_values_that_are_not_finite_survive() -> None:
    found = parse(b'{"step": 3, "kl": "NaN", "value_loss": "Infinity", "reward": "-Infinity"}')
    assert math.isnan(found.values["kl"])
    assert found.values["value_loss"] == math.inf
    assert found.values["reward"] == -math.inf


@pytest.mark.parametrize(
    ("spelled", "value"),
    [
        ("NaN", "nan"),
        ("nan", "nan"),
        ("-nan", "nan"),
        ("Infinity", "inf"),
        ("-Infinity", "-inf"),
        ("inf", "inf"),
        ("+inf", "inf"),
        ("-inf", "-inf"),
        ("INF", "inf"),
    ],
)
def test_values_that_are_not_finite_may_stand_without_quotes(spelled: str, value: str) -> None:
    line = f'{{"kl": {spelled}, "entropy":{spelled},"step": 3, "lr": 0.1, "reward" : {spelled} }}\n'
    found = parse(line.encode())
    assert {name: str(x) for name, x in found.values.items()} == {
        "kl": value,
        "entropy": value,
        "lr": "0.1",
        "reward": value,
    }


def test_the_largest_step_fits_into_arrays_and_json() -> None:
    step = parse(b'{"step": 9223372036854775807}').step
    assert int(np.array([step], dtype=np.int64)[0]) == step
    assert parse(encode(Record(step))).step == step


def test_what_is_no_number_is_absent() -> None:
    line = b'{"step": 1, "kl": null, "phase": "warmup", "tags": [1], "done": true, "lr": 0.1, "entropy": "1.5"}'
    assert parse(line) == Record(step=1, values={"lr": 0.1})


def test_a_step_may_be_written_as_a_float() -> None:
    assert parse(b'{"step": 12.0}').step == 12


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "no JSON"),
        (b'{"step": 12, "kl": 0.0', "no JSON"),
        (b'{"step": 12, "kl": NaN} {', "no JSON"),
        (b'{"step": 12, "kl": nano}', "no JSON"),
        (b'{"step": 9223372036854775808}', "'step' is 9223372036854775808, must be .* below 2"),
        (b'{"step": 1e300}', "'step' is 1e"),
        (b"[1, 2]", "no JSON object"),
        (b'{"kl": 0.1}', "'step' is None"),
        (b'{"step": -1}', "'step' is -1"),
        (b'{"step": 1.5}', "'step' is 1.5"),
        (b'{"step": true}', "'step' is True"),
        (b'{"step": "NaN"}', "'step' is 'NaN'"),
        (b'{"step": 1, "x": "' + b"a" * MAX_LINE + b'"}', "bytes"),
    ],
)
def test_a_line_that_is_no_record_is_refused(line: bytes, why: str) -> None:
    with pytest.raises(BadLine, match=why):
        parse(line)


@given(st.binary(max_size=200))
def test_no_line_breaks_the_reader(line: bytes) -> None:
    with contextlib.suppress(BadLine):
        assert parse(line).step >= 0
