"""`td-loop knots`: how well the knots still cover the features, and a re-baseline by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from td_loop.errors import UsageError
from td_loop.loop.config import CheckConfig

if TYPE_CHECKING:
    from td_loop.value.model import SplineValue

_NAME_WIDTH = 34


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("knots")(knots_command)


def knots_command(
    weights: Annotated[Path, typer.Argument(help="Weights npz to look at; it is never changed.")],
    cache: Annotated[Path, typer.Option(help="branch_data npz: the features that the knots should cover.")],
    rebaseline: Annotated[
        Path | None, typer.Option(help="Write the weights on knots derived anew from the cache here; a new file.")
    ] = None,
    n_knots: Annotated[
        int | None,
        typer.Option(help="With --rebaseline: knots per feature, 3..32.", show_default="as many as there are"),
    ] = None,
    knot_above_top_tau: Annotated[
        float, typer.Option(help="Mark features with more than this share above the top knot, 0..1.")
    ] = CheckConfig.knot_above_top_tau,
    knot_below_first_tau: Annotated[
        float, typer.Option(help="Mark features with more than this share below the first interior knot, 0..1.")
    ] = CheckConfig.knot_below_first_tau,
) -> None:
    """Show how much of the cache's features lies beyond the knots; re-baseline them if asked.

    Knots are frozen while the loop runs, but features drift as play changes. When drift warnings stay,
    --rebaseline derives knots anew as quantiles of the cache, moves every curve onto them by least squares, and
    tells how far V moved on the cache's rows. Use the new file as --bootstrap of a new run: V_snap starts there.
    """
    CheckConfig(knot_above_top_tau=knot_above_top_tau, knot_below_first_tau=knot_below_first_tau)  # in 0..1
    if n_knots is not None and not 3 <= n_knots <= 32:
        raise UsageError(f"--n-knots is {n_knots}, must be in 3..32")
    if n_knots is not None and rebaseline is None:
        raise UsageError("--n-knots needs --rebaseline")
    if rebaseline is not None and (rebaseline.exists() or rebaseline.is_symlink()):
        raise UsageError(f"--rebaseline {rebaseline} exists and is never overwritten; choose another name")

    from td_loop.fit.data import load_branch_data
    from td_loop.value.io import load_weights
    from td_loop.value.knots import coverage_stats

    v = load_weights(weights)
    rows = load_branch_data(cache, match=v).td
    stats = coverage_stats(v.knots, v.feature_names, rows.features, rows.n_players, rows.alive)
    _print_table(stats, knot_above_top_tau, knot_below_first_tau)
    if rebaseline is None:
        return

    from td_loop.value.knots import derive_knots
    from td_loop.value.reproject import change_of_value, reproject

    knots = derive_knots(rows.features, rows.alive, n_knots or v.knots.shape[1])
    moved = reproject(v, knots, rows.features, rows.n_players, rows.alive)
    change = change_of_value(v, moved, rows.features, rows.n_players, rows.alive)
    _save(rebaseline, moved, weights, cache)
    typer.echo(
        f"knots: V moved by at most {change.largest:.4f}, {change.mean:.6f} in the mean, "
        f"on {len(rows)} rows -> {rebaseline}"
    )


def _print_table(stats: Mapping[str, Mapping[str, float]], above_tau: float, below_tau: float) -> None:
    typer.echo("Share of the values of seats alive, the worst player count of each feature")
    typer.echo(f"{'feature':<{_NAME_WIDTH}} {'above top':>10} {'below first':>12} {'below bottom':>13}")
    drifted = 0
    for name, s in stats.items():
        above, below = s["frac_above_top_knot"], s["frac_below_first_interior_knot"]
        drift = above > above_tau or below > below_tau
        drifted += drift
        label = name if len(name) <= _NAME_WIDTH else name[: _NAME_WIDTH - 1] + "~"
        mark = " drift" if drift else ""
        typer.echo(
            f"{label:<{_NAME_WIDTH}} {above:>10.1%} {below:>12.1%} {s['frac_below_bottom_knot']:>13.1%}{mark}"
        )
    typer.echo(
        f"knots: {drifted} of {len(stats)} features drifted "
        f"(limits: above top {above_tau:.0%}, below first interior {below_tau:.0%})"
    )


def _save(path: Path, v: SplineValue, weights: Path, cache: Path) -> None:
    from td_loop.files import sha256
    from td_loop.value.io import save_weights
    from td_loop.value.model import SplineValue

    parent = sha256(weights)
    created_by = {"command": "knots --rebaseline", "inputs": {"weights": parent, "cache": sha256(cache)}}
    meta = {**v.meta, "parent_sha256": parent, "created_by": created_by}
    save_weights(path, SplineValue(v.knots, v.coef, v.feature_names, meta))
