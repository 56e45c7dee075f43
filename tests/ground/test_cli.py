"""cli: exit codes and errors as a person sees them."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from td_loop import cli
from td_loop.errors import Blowup, ReplayError


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)

    @app.command()
    def blow() -> None:
        raise Blowup("val_mc_nll 2.0 > 1.0")

    @app.command()
    def read(path: str, n: int = 1) -> None:
        raise ReplayError(f"{path}: empty")

    @app.command()
    def slip() -> None:
        raise ZeroDivisionError("a fault of ours")

    @app.command()
    def stop(swallowed: bool = False) -> None:
        with contextlib.suppress(BaseException if swallowed else ()):
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(cli, "app", app)
    return app


@pytest.mark.usefixtures("app")
@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["blow"], 2),
        (["read", "x"], 65),
        (["read"], 64),
        (["read", "x", "--n", "two"], 64),
        (["read", "x", "--unknown"], 64),
        (["nothing"], 64),
        (["slip"], 70),
        (["stop"], 143),
        (["stop", "--swallowed"], 143),
        (["--help"], 0),
    ],
)
def test_exit_codes(args: list[str], code: int) -> None:
    assert cli.main(args) == code


@pytest.mark.usefixtures("app")
def test_an_error_is_one_line_unless_debug_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["read", "games"])
    assert capsys.readouterr().err == "error: games: empty\n"
    cli.main(["read", "games", "--debug"])
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_output_that_cannot_be_written_is_a_storage_error(stream: str) -> None:
    args = ["--help"] if stream == "stdout" else ["status", "nowhere"]
    with Path("/dev/full").open("wb") as full:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | {stream: full}
        done = subprocess.run([sys.executable, "-m", "td_loop", *args], check=False, text=True, **pipes)
    if stream == "stdout":
        assert done.returncode == 74
        assert done.stderr == (
            "error: cannot write the output: No space left on device; free space, then run again\n"
        )
    else:
        assert done.returncode == 65  # the error itself cannot be said, but its code can
