"""How a release ends: withdrawn or promoted. Every step may be done twice, for a controller may be killed at
each."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from td_loop.deploy.canary import store
from td_loop.deploy.canary.machine import Event, Move, Release, Stage, after
from td_loop.deploy.canary.record import Record
from td_loop.deploy.canary.serving import ServingError
from td_loop.deploy.canary.world import BREAK_S, World, insist
from td_loop.deploy.routing.contract import RouterError
from td_loop.errors import Interrupted

_UNLOAD_TRIES = 3
_ROUTER_TRIES = 2
"""Tries of a router that does not answer, after which the server gives up the canary first."""


def take_traffic(world: World) -> int:
    """Set the weights to 100/0 and have them read back, for as long as it takes; return how many tries it took.

    A router that does not answer may split traffic all the same. After some tries the server unloads the canary:
    then its stable policy answers what still comes for the canary. The weights are tried on.

    A signal ends it after one more try of both.
    """
    failed, unloaded = 0, False

    def unload() -> None:
        nonlocal unloaded
        if not unloaded:
            with contextlib.suppress(ServingError):
                world.serving.unload_canary()
                unloaded = True
                world.voice.say("the router does not answer, so the canary was unloaded at the server")

    def set_to_nothing() -> None:
        nonlocal failed
        try:
            world.router.set(0.0)
        except RouterError:
            failed += 1
            if failed >= _ROUTER_TRIES:
                unload()
            raise

    try:
        tries = insist(world, "take the canary's traffic away", set_to_nothing, RouterError)
    except Interrupted:
        try:
            world.router.set(0.0)
        except RouterError:
            unload()
        raise
    world.voice.say("the canary has 0 % of the traffic, read back from the router")
    return tries


def withdraw(world: World, record: Record, release: Release, unwritten: store.Line | None, tries: int) -> Release:
    """All of a rollback that follows once the canary has no traffic.

    Args:
        world: everything outside.
        record: what is written with.
        release: in stage `rolling_back`.
        unwritten: the line of the rollback, where the disk refused it.
        tries: how many it took to set the weights.

    Returns:
        The release, rolled back.
    """

    def writing(what: str, action: object) -> None:
        insist(world, f"write {what}", action)  # type: ignore[arg-type]

    if unwritten is not None:
        writing("the audit log", lambda: store.append_audit(world.folder, unwritten))
    lines = [x for x in store.read_audit(world.folder) if x.release.number == release.number]
    cause = next(x for x in lines if x.event is Event.ROLL_BACK)
    if all(x.event is not Event.WITHDRAWN for x in lines):
        record.tell(cause)
        release = replace(release, seq=release.seq + 1)
        figures = {"weights": {"stable": 100, "canary": 0}, "tries": tries}
        line = record.line(Event.WITHDRAWN, release.stage, release, "weights are 100/0, read back", figures)
        writing("the audit log", lambda: record.append(line))
    if release.refused:
        args = (world.folder, release.sha256, release.reason, release.number)
        writing("the list of refused artefacts", lambda: store.refuse(*args))
    _unload(world, record, release)
    try:
        world.postmortem(world.folder, cause)
    except Exception as e:  # whatever a look at a broken artefact raises: the release has to end all the same
        record.note(release, f"no postmortem: {type(e).__name__}: {e}")
    return _end(world, record, release, Stage.ROLLED_BACK, release.reason)


def promote(world: World, record: Record, release: Release) -> Release:
    """Make the canary the stable policy; where the subsets have servers of their own, give it all traffic.

    Raises:
        RouterError, ServingError: not all of it is done yet.
    """
    apart, policies = world.router.apart, world.serving.policies()
    if policies.stable != release.sha256 or not policies.settled:
        if release.sha256 not in {policies.stable, policies.canary} or (apart and not policies.settled):
            world.serving.load_canary(release.path, shadow=False)  # the server has begun anew since
        if not apart:
            world.serving.promote(release.sha256)
    if apart:
        full = replace(release, weight=world.router.set(100.0))
        reason = "the canary has all traffic: deploy it as the stable policy, then set its weight to 0"
        return _end(world, record, full, Stage.PROMOTED, reason)
    # Both subsets have the same policy now: which of them answers makes no difference.
    world.router.set(0.0)
    if world.serving.policies().canary:
        world.serving.unload_canary()
    return _end(world, record, replace(release, weight=0.0), Stage.PROMOTED, "the canary is the stable policy")


def _end(world: World, record: Record, release: Release, stage: Stage, reason: str) -> Release:
    became = after(release, Move(Event.ADVANCE, stage, release.weight, reason), world.clock.now())
    line = record.line(Event.ADVANCE, release.stage, became, reason)
    insist(world, "write the audit log", lambda: record.append(line))
    return became


def _unload(world: World, record: Record, release: Release) -> None:
    for n in range(1, _UNLOAD_TRIES + 1):
        try:
            world.serving.unload_canary()
            if world.serving.policies().stable == release.sha256:
                record.note(release, "it is the server's stable policy: it was promoted before; serve another")
        except ServingError as e:
            if n == _UNLOAD_TRIES:
                record.note(release, f"the server keeps the canary loaded, without traffic: {e}")
            else:
                world.clock.sleep(BREAK_S)
        else:
            return
