from __future__ import annotations

from pathlib import Path

import pytest

from td_loop.errors import DataError, UsageError
from td_loop.guard.config import GuardConfig, read_config
from td_loop.guard.detectors import EntropyCollapse, KlSpike


def written(folder: Path, text: str) -> Path:
    path = folder / "guard.toml"
    path.write_text(text)
    return path


def test_everything_has_a_default() -> None:
    config = read_config(None, {})
    assert config == GuardConfig()
    assert config.breaker.max_retries == 3
    assert config.run.on_crash == "exit"
    assert config.run.on_stall == "warn"
    assert any(d == KlSpike(max_kl=0.05, patience=3) for d in config.panel.detectors)


def test_a_flag_goes_before_the_file(tmp_path: Path) -> None:
    text = "[breaker]\nmax_retries = 5\n[guard]\ngrace_s = 2\n[snapshots]\nkeep = 7\n"
    path = written(tmp_path, text)
    config = read_config(path, {"breaker": {"max_retries": 1}, "snapshots": {"promote_after": 4}})
    assert (config.breaker.max_retries, config.run.grace_s) == (1, 2)
    assert (config.snapshots.keep, config.snapshots.promote_after) == (7, 4)


def test_detectors_are_set_in_their_tables(tmp_path: Path) -> None:
    path = written(tmp_path, "[detectors.kl]\nmax_kl = 0.2\n[detectors.entropy]\nenabled = false\n")
    detectors = read_config(path, {}).panel.detectors
    assert KlSpike(max_kl=0.2) in detectors
    assert not any(isinstance(d, EntropyCollapse) for d in detectors)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[gard]\n", r"\[top level\] gard: there is no such key; did you mean 'guard'"),
        (
            "[breaker]\nmax_retrys = 2\n",
            r"\[breaker\] max_retrys: there is no such key; did you mean 'max_retries'",
        ),
        ("[breaker]\nmax_retries = -1\n", r"max_retries = -1: must be a whole number from 0"),
        ("[breaker]\nmax_retries = 1.5\n", r"max_retries = 1.5"),
        ("[breaker]\ntrial_steps = 0\n", r"trial_steps = 0: must be a whole number from 1"),
        ("[guard]\ngrace_s = -1\n", r"grace_s = -1"),
        ("[guard]\non_crash = 'again'\n", r"on_crash = 'again': must be one of 'exit', 'retry'"),
        ("[guard]\ntelemetry = 'tcp://x'\n", r"telemetry = 'tcp://x': must be \"file\""),
        ("[guard]\ntelemetry = 3\n", r"telemetry = 3: must be \"file\""),
        ("[snapshots]\nkeep = 0\n", r"keep = 0: must be a whole number from 1"),
        ("[snapshots]\npromote_after = 0\n", r"promote_after = 0"),
        ("[purge]\ncommand = [1]\n", r"command = \[1\]: must be a list of words"),
        ("[purge]\ncommand = ['x', '{step}']\n", r"in braces may stand from_step, to_step"),
        ("[purge]\ncommand = ['x', '{from_step.year}']\n", r"in braces may stand from_step, to_step"),
        ("[purge]\ncommand = ['x', '{from_time:d}']\n", r"in braces may stand from_step, to_step"),
        ('[purge]\ncommand = "x \'y"\n', r"command = \"x 'y\": No closing quotation; write a list"),
        ("[metrics]\nport = 70000\n", r"port = 70000"),
        ("[metrics]\nfile = 3\n", r"file = 3: must be text"),
        ("[detectors.kl]\nmax_kl = -0.1\n", r"max_kl = -0.1"),
        ("[detectors.kl]\npatience = 0\n", r"patience = 0"),
        ("guard = 3\n", r"\[guard\] is 3, must be a table"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=rf"guard\.toml: .*{said}"):
        read_config(written(tmp_path, text), {})


def test_a_file_that_cannot_be_read_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read_config(tmp_path / "none.toml", {})
    with pytest.raises(DataError, match=r"no valid TOML: .*line 2"):
        read_config(written(tmp_path, "[guard]\nmax_retries = \n"), {})
    (tmp_path / "guard.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="cannot be read"):
        read_config(tmp_path / "guard.toml", {})


def test_what_is_printed_reads_back_as_the_same(tmp_path: Path) -> None:
    text = """
[breaker]
max_retries = 7
[guard]
on_crash = "retry"
telemetry = 'unix:/tmp/a "quoted" name'
[purge]
command = "python purge.py '{from_step} {to_step}'"
[detectors.kl]
max_kl = 0.2
[detectors.drawdown]
enabled = false
[detectors.stalled]
enabled = false
[detectors.jump.my_loss]
[audit]
clip_norm = 0.5
"""
    config = read_config(written(tmp_path, text), {})
    assert config.purge.command == ("python", "purge.py", "{from_step} {to_step}")
    assert read_config(written(tmp_path, config.as_toml()), {}) == config
    assert read_config(written(tmp_path, GuardConfig().as_toml()), {}) == GuardConfig()
