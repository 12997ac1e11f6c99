"""What an agent watches besides its tasks: the exchange, shared directories, the load, and how far tasks are."""

from collections.abc import Callable
from dataclasses import dataclass

from onager.clock import Clock
from onager.executor.agent.exchange_watch import ExchangeWatch
from onager.executor.agent.load_watch import LoadWatch
from onager.executor.agent.place_watch import PlaceWatch
from onager.executor.agent.progress_watch import ProgressWatch
from onager.executor.agent.registration import Identity
from onager.executor.agent.space import SpaceWatch
from onager.executor.agent.threads import Threads
from onager.executor.exchange.seen_places import SeenPlaces
from onager.executor.settings import ExecutorSettings
from onager.executor.work import Worker
from onager.protocol import onager_pb2 as pb
from onager.supervision import Background


@dataclass(frozen=True, slots=True)
class AgentEnv:
    """What the parts of an agent work with."""

    settings: ExecutorSettings
    identity: Identity
    worker: Worker
    clock: Clock
    threads: Threads


class Watches:
    """All that an agent looks at now and then; heartbeats tell what was seen."""

    def __init__(
        self,
        env: AgentEnv,
        seen: SeenPlaces,
        *,
        beat: Callable[[], None],
        on_change: Callable[[], None],
        is_working: Callable[[], bool],
    ) -> None:
        """*beat* sends a heartbeat at once; *on_change* is called when the agent may work again, or must not."""
        settings, worker, threads = env.settings, env.worker, env.threads
        self.load = LoadWatch(lambda: threads.samples(worker.sample_load))
        self.exchange = ExchangeWatch(
            lambda: threads.looks(worker.exchange_contents),
            env.identity.incarnation,
            env.clock,
            every_s=settings.exchange_look_ms / 1000,
        )
        self.space = SpaceWatch(lambda: threads.probes(worker.check_exchange), beat, settings.executor_id)
        self.places = PlaceWatch(seen, threads.places, beat=beat, on_change=on_change)
        self.progress = ProgressWatch(lambda: threads.samples(worker.progress), is_working)

    def start(self, background: Background) -> None:
        """Begin to look, but for space: the agent cannot do without that."""
        background.start("looks at the exchange", self.exchange.run())
        background.start("looks at shared directories", self.places.run())
        background.start("samples of the load", self.load.run())
        background.start("looks at running tasks", self.progress.run())

    def add_to(self, request: pb.HeartbeatRequest, free_slots: int) -> None:
        """Add what was seen to a heartbeat, which lists the running tasks already."""
        self.exchange.add_to(request)
        self.places.add_to(request)
        request.no_space = self.space.why
        self.load.add_to(request, free_slots)
        self.progress.add_to(request)
