"""Executors and schedulers without Spark that share directories, each as a machine of its own sees them."""

from collections.abc import Mapping
from pathlib import Path

from onager.executor.exchange.seen_places import SeenPlaces
from onager.ids import new_incarnation
from onager.place_files import EXCHANGE, WAREHOUSE, root_name
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import PROTOCOL_VERSION
from onager.scheduler.app import SchedulerApp
from onager.scheduler.executors.own_exchange import OwnExchange
from onager.scheduler.settings import SchedulerSettings
from onager.state_backend import Keyspace


class _Context:
    def peer(self):
        return "ipv4:192.0.2.1:1"


class Machine:
    """What an executor does about places, by hand: it beats when it is asked to."""

    def __init__(
        self, name: str, clock, exchange: Path, warehouse: Path | None = None, roots: Mapping[str, Path] | None = None
    ) -> None:
        """*roots*: where this machine has the directories that settings name so."""
        self.name, self.incarnation = name, new_incarnation()
        paths = {root_name(root): str(path) for root, path in (roots or {}).items()}
        paths |= {EXCHANGE: str(exchange)} | ({} if warehouse is None else {WAREHOUSE: str(warehouse)})
        self.places = SeenPlaces(paths, self.incarnation, clock)
        self.looked_for: list[pb.PlaceMark] = []

    async def register(self, app: SchedulerApp) -> None:
        self.places.look()
        request = pb.RegisterExecutorRequest(
            executor_id=self.name,
            incarnation=self.incarnation,
            host=f"host-of-{self.name}",
            slots=1,
            protocol_version=PROTOCOL_VERSION,
            spark_version="4.3",
            places=self.places.views(),
        )
        self._take(await app.gateway.RegisterExecutor(request, _Context()))

    async def beat(self, app: SchedulerApp, times: int = 1) -> None:
        for _ in range(times):
            request = pb.HeartbeatRequest(
                executor_id=self.name,
                incarnation=self.incarnation,
                places=self.places.views(),
                looked_for=self.looked_for,
            )
            self._take(await app.gateway.Heartbeat(request, _Context()))

    def _take(self, answer) -> None:
        self.places.take(answer.places)
        self.places.obey(answer.places)
        wanted = answer.look_for if isinstance(answer, pb.HeartbeatResponse) else ()
        self.looked_for = self.places.find(wanted)
        self.places.look()

    def sees(self, name: str = EXCHANGE) -> bool:
        return name not in self.places.unseen()


class SchedulerMachine:
    """A scheduler whose loops do not run, with the exchange directory as its machine sees it."""

    def __init__(self, name: str, clock, backend, exchange: Path, *, looks: bool = True) -> None:
        settings = SchedulerSettings(exchange_dir=str(exchange), scheduler_id=name, listen="127.0.0.1:1")
        self.app = SchedulerApp(settings, backend, clock)
        self.backend = backend
        self.own: OwnExchange | None = None
        if looks:
            schedulers, places = self.app.schedulers, self.app.places

            def make() -> None:
                exchange.mkdir(exist_ok=True)

            self.own = OwnExchange(str(exchange), backend, schedulers, places, clock, make)
            places.own = self.own

    async def start(self) -> None:
        await self.show()
        await self.app.start()

    async def show(self) -> None:
        """Write this scheduler's record, and read those of others, as its loops would."""
        schedulers = self.app.schedulers
        schedulers.lease = schedulers.lease or await self.backend.lease(60)
        await self.backend.put(Keyspace.Schedulers, schedulers.id, schedulers.record.encoded())
        await schedulers.refresh()

    async def look(self, times: int = 1) -> None:
        assert self.own is not None
        for _ in range(times):
            await self.app.schedulers.refresh()
            await self.own.look_once()
            await self.show()

    async def stop(self) -> None:
        await self.backend.delete(Keyspace.Schedulers, self.app.schedulers.id)
        await self.app.close()
