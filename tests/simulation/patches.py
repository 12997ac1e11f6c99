"""What makes a simulation deterministic: its randomness, network and log take the place of the machine's."""

import gc
import random  # noqa: TID251 seeded
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import structlog

from onager.errors import OnagerError
from tests.simulation import replans
from tests.simulation.damage import REPORTED_OF_IT
from tests.simulation.loop import current
from tests.simulation.network import Channel
from tests.simulation.planted import PLANTED
from tests.simulation.programs.patches import programs_patched
from tests.simulation.versions import two_releases
from tests.simulation.worker import read_result

if TYPE_CHECKING:
    from tests.simulation.world import World

_ORPHAN_AGE_S = 2
_HARMLESS_ERRORS = frozenset({"report_unusable", "jvm_given_up"})


@contextmanager
def patched(world: "World", planted: str | None) -> Iterator[None]:
    """Run the product in *world*, with the bug *planted* in it if one is named."""
    draw = random.Random(f"secrets {world.seed}")
    before = structlog.get_config()
    log = _Log(world)
    structlog.configure(
        processors=[structlog.processors.add_log_level, log],
        wrapper_class=structlog.BoundLogger,
        cache_logger_on_first_use=False,
    )
    with ExitStack() as stack:
        stack.callback(lambda: structlog.configure(**before))
        for target, replacement in (
            ("secrets.token_hex", lambda n=16: draw.randbytes(n).hex()),
            ("secrets.randbelow", draw.randrange),
            ("grpc.aio.insecure_channel", lambda address, **_: Channel(world.network, address)),
            ("onager.result_files.read_result", lambda _, path, __, first: read_result(world.exchange, path, first)),
            ("onager.state_backend.faulty._TICK_S", 3_600.0),  # this clock wakes its waiters
            ("onager.scheduler.timing.ORPHAN_AGE_S", _ORPHAN_AGE_S),
            ("onager.execution_graph.replan_rules.FORCED_LIMIT_MS", replans.LIMIT_MS),
            ("onager.scheduler.jobs.job_store.SNAPSHOT_MIN_LOG_BYTES", world.rng.choice((1_000, 4_000, 64_000))),
            ("onager.scheduler.jobs.job_store.SNAPSHOT_LOG_RATIO", 1),
            ("onager.scheduler.catalog.merging.MAX_PAGES", 2),
            *([("onager.scheduler.engine.stage_inputs.INLINE_BYTES", 0)] if world.seed % 19 == 0 else []),
        ):
            stack.enter_context(mock.patch(target, replacement))
        if world.is_mixed:
            stack.enter_context(two_releases(world.schedulers_here, world.observer.fail))
        if world.hosts:
            stack.enter_context(programs_patched(world))
        if planted is not None:
            stack.enter_context(PLANTED[planted]())
        # When garbage is collected is not for the seed to say, so it waits until the end.
        gc.disable()
        stack.callback(gc.enable)
        yield


class _Log:
    """Takes in what the product logs; an error there is one of the simulation."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def __call__(self, _: Any, __: str, fields: Any) -> Any:
        event, level = fields.get("event"), fields.get("level")
        try:
            who = current().name
        except LookupError:
            who = "?"
        if level != "debug":
            reported = " ".join(f"{k}={v}" for k, v in fields.items() if k not in ("event", "level", "exc_info"))
            self._world.trace(f"{who} {level}: {event} {reported}")
        is_error = level in ("error", "critical") or (fields.get("exc_info") and level != "debug")
        is_damage = event in REPORTED_OF_IT and self._world.damage.job_id is not None
        # A handled error of Onager is not a defect.
        if (
            is_error
            and not is_damage
            and event not in _HARMLESS_ERRORS
            and not isinstance(sys.exc_info()[1], OnagerError)
        ):
            self._world.observer.fail(f"{who} logged {event}: { {k: _text(v) for k, v in fields.items()} }")
        raise structlog.DropEvent


def _text(value: Any) -> str:
    return (repr(value) if isinstance(value, BaseException) else str(value))[:300]
