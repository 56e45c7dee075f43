"""From flags to a controller at work: the lock, the checks before a release, and what it is connected to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from td_loop.deploy.admission.record import is_verified
from td_loop.deploy.canary import store
from td_loop.deploy.canary.controller import Controller
from td_loop.deploy.canary.http_serving import HttpServing
from td_loop.deploy.canary.machine import Release, Stage
from td_loop.deploy.canary.observation import Source
from td_loop.deploy.canary.prometheus import Prometheus
from td_loop.deploy.canary.serving import Policies, Serving, ServingError
from td_loop.deploy.canary.settings import CanarySettings
from td_loop.deploy.canary.webhook import Webhook
from td_loop.deploy.canary.window import Window
from td_loop.deploy.canary.world import Voice, WallClock, World
from td_loop.deploy.names import SERVER_FILE
from td_loop.deploy.postmortem.write import after_rollback
from td_loop.deploy.routing.choose import open_router
from td_loop.deploy.routing.contract import Router
from td_loop.errors import DataError, Refused, UsageError
from td_loop.files import make_dir, read_json, sha256
from td_loop.lock import locked


@dataclass(frozen=True)
class Ends:
    """How everything outside is reached; kept in the audit log, for whoever goes on after a kill.

    Attributes:
        server: URL; "": of whichever works in the folder.
        token: file with the server's token.
        router: see `open_router`.
        router_options: see there.
        prometheus: URL; "": the server's own metrics.
        selector: see `Prometheus`.
    """

    server: str
    token: str
    router: str = "embedded"
    router_options: Mapping[str, str] = field(default_factory=dict)
    prometheus: str = ""
    selector: str = ""


def server_of(folder: Path) -> str:
    """The URL of the server that works in a folder.

    Raises:
        UsageError: none does.
    """
    path = folder / SERVER_FILE
    try:
        return str(read_json(path)["url"])
    except (DataError, LookupError, TypeError) as e:
        raise UsageError(f"no server works in {folder} ({e}); start one, or give --server URL") from e


def serving_of(folder: Path, ends: Ends) -> HttpServing:
    """The server that a release is tried on; one that was started anew elsewhere is found again."""
    return HttpServing(_address(folder, ends), Path(ends.token))


def check_server(serving: Serving, ends: Ends) -> Policies:
    """What a server serves.

    Raises:
        UsageError: it does not answer, or it splits by itself though a router is to.
    """
    try:
        found = serving.policies()
    except ServingError as e:
        raise UsageError(f"{e}; is `td-loop deploy serve` running?") from e
    if ends.router != "embedded" and not found.behind_proxy:
        raise UsageError(
            f"--router {ends.router}: the server splits by itself and does not go by x-rl-subset; start it with "
            "`td-loop deploy serve --behind-proxy`"
        )
    return found


def check_apart(router: Router, settings: CanarySettings, ends: Ends) -> None:
    """Refuse what cannot be where the subsets have servers of their own (see `Router.apart`).

    Raises:
        UsageError: it cannot be.
        RouterError: the router does not answer.
    """
    if not router.apart:
        return
    if settings.stages.shadow_s > 0:
        raise UsageError("stable and canary are servers apart: no request comes to both, so give --shadow 0")
    if not ends.prometheus:
        raise UsageError("stable and canary are servers apart: give --prometheus URL, which watches both")
    if (share := router.read()) != 0:
        raise UsageError(
            f"the canary's servers have {share:g} % of the traffic: deploy what they serve as the stable policy, "
            "set their weight to 0, and begin then"
        )


def _address(folder: Path, ends: Ends) -> Callable[[], str]:
    return lambda: ends.server or server_of(folder)


@contextmanager
def opened(
    folder: Path, ends: Ends, settings: CanarySettings, voice: Voice, config: Path | None
) -> Iterator[World]:
    """The world of a controller, while the block runs."""
    with ExitStack() as stack:
        source: Source = (
            Prometheus(ends.prometheus, ends.selector) if ends.prometheus else Window(_address(folder, ends))
        )
        stack.callback(source.close)
        router = open_router(ends.router, ends.router_options)
        stack.callback(router.close)
        webhook = Webhook(settings.webhook)
        serving = serving_of(folder, ends)
        yield World(folder, router, source, serving, webhook, WallClock(), voice, after_rollback, config)


def release(
    folder: Path, artefact: Path, settings: CanarySettings, ends: Ends, voice: Voice, config: Path | None
) -> Stage:
    """Release an artefact, or go on with its release; return how it ended.

    Args:
        folder: of the releases.
        artefact: the canary.
        settings, ends: of a release that begins; one that is under way keeps its own.
        voice: whom to say things.
        config: the file that the settings came from.

    Raises:
        DataError: there is no such artefact, or the folder's files are damaged.
        Refused: it was not verified, or has been rolled back before.
        UsageError: another release is under way, the artefact is the stable policy already, or server and router
            are not made for each other.
        RouterError: the router does not tell how it is made.
        RunInUse: another controller is at work in the folder.
    """
    path = artefact.resolve()
    try:
        sha = sha256(path)
    except FileNotFoundError as e:
        raise DataError(f"{artefact}: no such file") from e
    make_dir(folder)
    with _at_work(folder):
        if (under_way := store.under_way(folder)) is not None:
            if under_way.sha256 != sha:
                raise UsageError(
                    f"release {under_way.number}, of {under_way.sha256[:12]}, has not ended (it is in stage "
                    f"{under_way.stage}): give its artefact to go on, or `td-loop deploy abort`"
                )
            return _resume(folder, voice, config)
        store.check_not_refused(folder, sha)
        if not (is_verified(path) or is_verified(path, folder)):
            raise Refused(f"{artefact}: was not verified; `td-loop deploy verify {artefact}` first")
        lines = store.read_audit(folder)
        number, seq = (lines[-1].release.number + 1, lines[-1].seq + 1) if lines else (1, 1)
        for what in store.REQUESTS:  # left over: meant for a release that has ended
            store.forget(folder, what)
        with opened(folder, ends, settings, voice, config) as world:
            if check_server(world.serving, ends).stable == sha:
                raise UsageError(f"{artefact} is the stable policy already")
            check_apart(world.router, settings, ends)
            return Controller(world, settings, Release(number, sha, str(path), seq), asdict(ends)).run()


def resume(folder: Path, voice: Voice) -> Stage | None:
    """Go on with the release that is under way; return how it ended, None if there is none.

    Raises:
        RunInUse: a controller is at work in the folder.
        DataError: the folder's files are damaged.
    """
    with _at_work(folder):
        return None if store.under_way(folder) is None else _resume(folder, voice, None)


def _resume(folder: Path, voice: Voice, config: Path | None) -> Stage:
    lines = store.read_audit(folder)
    begin = next(x for x in lines if x.release.number == lines[-1].release.number).evidence
    ends, settings = Ends(**begin["ends"]), CanarySettings.from_mapping(begin["settings"])
    with opened(folder, ends, settings, voice, config) as world:
        try:
            check_server(world.serving, ends)
        except UsageError as e:  # a rollback, or an abort, needs no server
            voice.say(str(e))
        controller = Controller.resumed(world)
        assert controller is not None
        return controller.run()


@contextmanager
def _at_work(folder: Path) -> Iterator[None]:
    remedy = "see `td-loop deploy status`, or end it with `td-loop deploy abort`"
    with locked(folder / store.LOCK, remedy) as lock:
        lock.sign()
        store.repair(folder)
        yield
