"""canary.toml: defaults, flags, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from td_loop.deploy.canary.settings import CanarySettings, read_settings
from td_loop.errors import DataError, UsageError


def test_what_is_printed_is_what_is_read(tmp_path: Path) -> None:
    settings = read_settings(None, {"stages": {"ramp_s": 60.0, "gate": "manual"}, "webhook": {"url": "http://x"}})
    path = tmp_path / "canary.toml"
    path.write_text(settings.as_toml())
    assert read_settings(path, {}) == settings
    assert CanarySettings.from_mapping(settings.as_mapping()) == settings


def test_a_flag_goes_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "canary.toml"
    path.write_text("[stages]\nramp_s = 60\ncanary_s = 5\n[limits]\ndrop = 0.1\n")
    settings = read_settings(path, {"stages": {"ramp_s": 30.0}})
    assert (settings.stages.ramp_s, settings.stages.canary_s, settings.limits.drop) == (30.0, 5, 0.1)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[stages]\nramp = 60\n", r"\[stages\] ramp: there is no such key; did you mean 'ramp_s'"),
        ("[stage]\n", "did you mean 'stages'"),
        ("stages = 3\n", r"\[stages\] is 3, must be a table"),
        ("[stages]\ncanary_percent = 80\n", "canary_percent = 80: must be a finite number from 0.01 up to 50"),
        ("[stages]\nramp_to = 3\n", "must not be below canary_percent, 5"),
        ("[stages]\nramp_to = 100\n", "ramp_to = 100"),
        ("[stages]\ngate = 'maybe'\n", "must be one of 'auto', 'manual'"),
        ("[limits]\nalpha = 0\n", "alpha = 0"),
        ("[watch]\npoll_s = nan\n", "poll_s = nan"),
        ("[webhook]\nurl = 'ftp://x'\n", "must begin with http"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_place(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "canary.toml"
    path.write_text(content)
    with pytest.raises(UsageError, match=words) as e:
        read_settings(path, {})
    assert str(e.value).startswith(f"{path}: ")


def test_a_file_that_is_missing_or_no_toml_is_an_error_of_data(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file; leave --config out"):
        read_settings(tmp_path / "canary.toml", {})
    (tmp_path / "canary.toml").write_text("[stages\n")
    with pytest.raises(DataError, match="no valid TOML"):
        read_settings(tmp_path / "canary.toml", {})
    with pytest.raises(DataError, match="cannot be read"):
        read_settings(tmp_path, {})
