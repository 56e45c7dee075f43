"""sources: every way to name episode files, and files that cannot be unpacked."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import pytest

from td_loop.errors import ReplayError
from td_loop.games.orbit_wars.replays.sources import Reader, Source, find_sources, fingerprint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """a.json, b.json.gz, deep/c.json, games.zip (d.json, x/e.json.gz), and what is no episode file."""
    root = tmp_path / "games"
    (root / "deep").mkdir(parents=True)
    (root / ".hidden").mkdir()
    (root / "a.json").write_bytes(b"a")
    (root / "b.json.gz").write_bytes(gzip.compress(b"b"))
    (root / "deep" / "c.json").write_bytes(b"c")
    (root / ".hidden" / "n.json").write_bytes(b"n")
    (root / "README.md").write_bytes(b"text")
    with zipfile.ZipFile(root / "games.zip", "w") as z:
        z.writestr("d.json", b"d")
        z.writestr("x/e.json.gz", gzip.compress(b"e"))
        z.writestr("x/", b"")
        z.writestr("__MACOSX/x/._e.json", b"junk")
        z.writestr("notes.txt", b"text")
    return root


def read_all(patterns: list[str]) -> str:
    with Reader() as reader:
        return "".join(reader.read(s).decode() for s in find_sources(patterns))


def test_a_folder_is_searched_to_the_bottom_and_zips_are_opened(folder: Path) -> None:
    assert read_all([str(folder)]) == "abcde"


def test_a_glob_a_file_and_a_zip(folder: Path) -> None:
    assert read_all([f"{folder}/*.json"]) == "a"
    assert read_all([f"{folder}/**/*.json"]) == "ac"
    assert read_all([f"{folder}/b.json.gz"]) == "b"
    assert read_all([f"{folder}/games.zip"]) == "de"


def test_a_file_named_twice_is_read_once(folder: Path) -> None:
    assert read_all([f"{folder}/a.json", f"{folder}/*.json", str(folder / "a.json")]) == "a"


def test_a_folder_that_looks_like_a_glob_is_a_folder(tmp_path: Path) -> None:
    odd = tmp_path / "run[1]"
    odd.mkdir()
    (odd / "a.json").write_bytes(b"a")
    assert read_all([str(odd)]) == "a"


def test_gzip_is_known_by_its_first_bytes_not_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(gzip.compress(b"packed"))
    assert read_all([str(path)]) == "packed"


def test_nothing_found_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match=r"nowhere: no such file or folder"):
        find_sources([tmp_path / "nowhere"])
    with pytest.raises(ReplayError, match=r"x\*\.json: no such file"):
        find_sources([f"{tmp_path}/x*.json"])
    with pytest.raises(ReplayError, match=r"holds no \.json"):
        find_sources([tmp_path])


def test_a_damaged_zip_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "bad.zip"
    path.write_bytes(b"PK\3\4 and no more")
    with pytest.raises(ReplayError, match=r"bad\.zip: damaged or not a zip"):
        find_sources([path])


@pytest.mark.parametrize(
    "damage",
    [lambda b: b[:-20], lambda b: b[:15], lambda b: b[:60] + b"\xff\xff\xff\xff" + b[64:], lambda b: b[:2]],
)
def test_a_damaged_gzip_is_an_error_that_names_it(damage: object, tmp_path: Path) -> None:
    path = tmp_path / "g.json.gz"
    assert callable(damage)
    path.write_bytes(damage(gzip.compress(bytes(range(256)) * 4)))
    with Reader() as reader, pytest.raises(ReplayError, match=r"^g\.json\.gz: cannot be unpacked"):
        reader.read(Source(path))


def test_a_zip_member_with_a_wrong_checksum_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "games.zip"
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("a.json", b"the content of a game")
    path.write_bytes(path.read_bytes().replace(b"content", b"CONTENT", 1))
    (source,) = find_sources([path])
    with Reader() as reader, pytest.raises(ReplayError, match=r"^games\.zip:a\.json: cannot be unpacked"):
        reader.read(source)


def test_the_fingerprint_changes_when_a_file_is_added_or_replaced(folder: Path) -> None:
    first = fingerprint(find_sources([folder]))
    assert fingerprint(find_sources([folder])) == first
    (folder / "new.json").write_bytes(b"n")
    second = fingerprint(find_sources([folder]))
    (folder / "new.json").write_bytes(b"nn")
    assert len({first, second, fingerprint(find_sources([folder]))}) == 3
