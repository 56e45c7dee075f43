"""`td-loop replays`: what a person reads, and the exit codes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from td_loop.cli import main
from tests.replays.conftest import Json

Edit = Callable[[bytes, Callable[[Json], object]], bytes]


@pytest.fixture
def folder(game_2p: bytes, game_4p: bytes, crashed_game: bytes, edit: Edit, tmp_path: Path) -> Path:
    root = tmp_path / "games"
    root.mkdir()
    (root / "two.json").write_bytes(game_2p)
    (root / "four.json").write_bytes(game_4p)
    (root / "a_crash_with_quite_a_long_file_name.json").write_bytes(crashed_game)
    (root / "noseed.json").write_bytes(edit(game_2p, lambda d: (d.pop("info"), d["steps"].pop())))
    return root


def _narrow(text: str, tmp_path: Path) -> bool:
    return all(len(line) <= 80 for line in text.replace(str(tmp_path), "").splitlines())


def test_import_verify_info(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(tmp_path / "s")
    assert main(["replays", "import", str(folder), "--out", store]) == 0
    out = capsys.readouterr().out
    assert "4 games imported (219 frames" in out
    assert "a_crash_with_quite_a_long_file_name.json: seat 1 crashed (ERROR at step 21)" in out

    assert main(["replays", "verify", store]) == 0
    out = capsys.readouterr().out
    assert "four.json" in out
    assert "no seed: compared tick by tick from observed frames, exact" in " ".join(out.split())
    assert "4 of 4 games agree" in out
    assert _narrow(out, tmp_path)

    assert main(["replays", "info", store]) == 0
    out = capsys.readouterr().out
    assert _narrow(out, tmp_path)
    rows = {line[:26].strip(): line[26:].split() for line in out.splitlines()}
    assert rows["games"] == ["3", "1", "4"]
    assert rows["frames"] == ["179", "40", "219"]
    assert rows["usable frames"] == ["140", "40", "180"]
    assert rows["outcome usable"] == ["1", "1", "2"]
    assert rows["won by seat 0"] == ["1", "0", "1"]
    assert rows["won by seat 3"] == ["0", "1", "1"]
    assert rows["seed known"] == ["2", "1", "3"]
    assert rows["exact"] == ["2", "1", "3"]
    assert rows["exact tick by tick"] == ["1", "0", "1"]
    assert "cut short" in out


def test_info_of_episode_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "bad.json").write_text("hello")
    assert main(["replays", "info", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "unreadable:" in out
    assert "bad.json: not valid JSON" in out
    assert {line[:26].strip(): line[26:].split() for line in out.splitlines()}["games"] == ["3", "1", "4"]


def test_verify_names_what_differs_and_fails(
    folder: Path, game_2p: bytes, edit: Edit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def tamper(d: Json) -> None:
        d["steps"][12][0]["observation"]["planets"][2][5] += 1

    (folder / "old.json").write_bytes(edit(game_2p, tamper))
    (folder / "torn.json.gz").write_bytes(b"\x1f\x8b torn")
    assert main(["replays", "verify", "--quiet", str(folder)]) == 65
    captured = capsys.readouterr()
    text = " ".join(captured.out.split())
    assert "differs at turn 12: planets[2].ships, recorded" in text
    assert "unreadable: cannot be unpacked" in text
    assert "4 of 6 games agree" in text
    assert "two.json" not in text
    assert "2 of 6 games differ or cannot be read" in captured.err
    assert _narrow(captured.out, tmp_path)


def test_verify_finds_a_flipped_byte_in_a_store(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "s"
    assert main(["replays", "import", str(folder / "two.json"), "--out", str(store)]) == 0
    data = bytearray((store / "planet.f64").read_bytes())
    data[1000] ^= 1
    (store / "planet.f64").write_bytes(data)
    assert main(["replays", "verify", str(store)]) == 65
    assert "its frames are not those imported" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["import", "nowhere", "--out", "s"], 65, "no such file or folder"),
        (["import", "{games}", "--out", "{games}"], 64, "exists already; add to it with --append"),
        (["import", "{games}", "--out", "{games}", "--append"], 65, "not a replay store"),
        (["import", "{bad}", "--out", "s"], 65, "none of 1 file(s) could be imported"),
        (["import", "{games}"], 64, "--out"),
        (["import", "--out", "s"], 64, "SOURCE"),
        (["verify", "nowhere"], 65, "no such file or folder"),
        (["info", "nowhere"], 65, "no such file or folder"),
    ],
)
def test_what_cannot_be_done_is_said(
    arguments: list[str],
    code: int,
    message: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_text("hello")
    before = sorted(tmp_path.rglob("*"))
    filled = [a.format(games=folder, bad=tmp_path / "bad.json") for a in arguments]
    assert main(["replays", *filled]) == code
    assert message in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def test_append_adds(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(tmp_path / "s")
    assert main(["replays", "import", str(folder / "two.json"), "--out", store, "--no-verify"]) == 0
    assert main(["replays", "import", str(folder), "--out", store, "--append"]) == 0
    assert "3 games imported" in capsys.readouterr().out
