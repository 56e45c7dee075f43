"""Names of decisions, and rewards that are counted once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop.deploy.names import TOKEN_FILE
from td_loop.deploy.server.control import folder_token
from td_loop.deploy.server.decision_id import KEY_FILE, DecisionId, Signer, folder_key
from td_loop.deploy.server.ledger import FILE, Ledger, Redeemed

SIGNER = Signer(b"k" * 32)
ids = st.builds(
    DecisionId,
    ledger=st.integers(0, 2**32 - 1),
    process=st.integers(0, 63),
    number=st.integers(0, 2**48 - 1),
    subset=st.sampled_from(["stable", "canary"]),
    policy=st.binary(min_size=8, max_size=8),
    episode=st.integers(0, 2**32 - 1),
    fallback=st.booleans(),
    switched=st.booleans(),
)


@given(ids)
def test_a_name_says_what_was_written_into_it(x: DecisionId) -> None:
    assert SIGNER.write(x).startswith(f"{x.subset}.")
    assert SIGNER.read(SIGNER.write(x)) == x
    assert Signer(b"q" * 32).read(SIGNER.write(x)) is None


@given(ids, st.integers(0, 54), st.sampled_from("ABCxyz019-_"))
def test_a_name_that_was_changed_in_one_letter_is_unknown(x: DecisionId, at: int, letter: str) -> None:
    name = SIGNER.write(x)
    changed = name[:at] + letter + name[at + 1 :]
    assert SIGNER.read(changed) == (x if changed == name else None)


@given(st.text(max_size=80) | st.text("abcXYZ-_=", min_size=40, max_size=56).map("stable.{}".format))
def test_any_text_is_read_or_unknown(text: str) -> None:
    assert SIGNER.read(text) is None


def test_the_key_of_a_folder_is_made_once_and_is_nobody_elses(tmp_path: Path) -> None:
    key = folder_key(tmp_path)
    assert folder_key(tmp_path) == key
    assert (tmp_path / KEY_FILE).stat().st_mode & 0o777 == 0o600
    folder_token(tmp_path)
    assert (tmp_path / TOKEN_FILE).stat().st_mode & 0o777 == 0o600


Open = Callable[..., Ledger]


@pytest.fixture
def open_ledger(tmp_path: Path) -> Iterator[Open]:
    with ExitStack() as stack:

        def open_it(processes: int = 1, window: int = 4096) -> Ledger:
            ledger = Ledger(tmp_path, processes, window)
            stack.callback(ledger.close)
            return ledger

        yield open_it


def name_of(ledger: Ledger, process: int, number: int) -> DecisionId:
    return DecisionId(ledger.id, process, number, "stable", b"12345678", 0, False, False)


def test_a_decision_is_rewarded_once_whoever_takes_it(open_ledger: Open) -> None:
    one, other = open_ledger(2), open_ledger(2)
    first = name_of(one, 0, one.next_number(0))
    second = name_of(other, 1, other.next_number(1))
    assert other.redeem(first) is Redeemed.COUNTED
    assert one.redeem(first) is Redeemed.DUPLICATE
    assert other.redeem(first) is Redeemed.DUPLICATE
    assert one.redeem(second) is Redeemed.COUNTED


def test_processes_that_are_told_of_one_reward_at_the_same_time_count_it_once(
    open_ledger: Open, tmp_path: Path
) -> None:
    ledger = open_ledger(window=1 << 16)
    numbers = [ledger.next_number(0) for _ in range(2000)]
    program = (
        "import sys; from pathlib import Path; from td_loop.deploy.server.ledger import *\n"
        "from td_loop.deploy.server.decision_id import DecisionId\n"
        "book = Ledger(Path(sys.argv[1]), 1, 1 << 16)\n"
        "ids = [DecisionId(book.id, 0, n, 'stable', b'12345678', 0, False, False) for n in range(2000)]\n"
        "print(sum(book.redeem(x) is Redeemed.COUNTED for x in ids))"
    )

    def redeem(_: int) -> int:
        done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, capture_output=True)
        return int(done.stdout)

    with ThreadPoolExecutor(3) as pool:
        assert sum(pool.map(redeem, range(3))) == len(numbers)


def test_what_was_never_decided_or_too_long_ago_is_not_rewarded(open_ledger: Open) -> None:
    ledger = open_ledger()
    for _ in range(4096):
        ledger.next_number(0)
    assert ledger.redeem(name_of(ledger, 0, 4096)) is Redeemed.UNKNOWN
    assert ledger.redeem(name_of(ledger, 1, 0)) is Redeemed.UNKNOWN
    assert ledger.redeem(name_of(ledger, 0, 0)) is Redeemed.EXPIRED
    assert ledger.redeem(name_of(ledger, 0, 4095)) is Redeemed.COUNTED


def test_the_book_outlives_the_server_and_a_new_one_does_not_take_its_names(
    open_ledger: Open, tmp_path: Path
) -> None:
    old = open_ledger()
    name = name_of(old, 0, old.next_number(0))
    again = open_ledger()
    assert again.next_number(0) == 1
    assert again.redeem(name) is Redeemed.COUNTED
    (tmp_path / FILE).unlink()
    anew = open_ledger()
    anew.next_number(0)
    assert anew.redeem(name) is Redeemed.UNKNOWN


@pytest.mark.parametrize("processes", [1, 3])
def test_another_number_of_processes_begins_a_new_book(open_ledger: Open, processes: int) -> None:
    assert open_ledger(2).id != open_ledger(processes).id
