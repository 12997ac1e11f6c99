"""Machines that share directories, or do not: their mounts are links."""

from onager.place_files import EXCHANGE
from onager.scheduler.executors.place_records import PlaceRecord
from onager.state_backend import Keyspace
from onager.state_backend.memory import MemoryBackend
from tests.support.fakes.machines import Machine, SchedulerMachine


class World:
    def __init__(self, tmp_path, clock, store, shared):
        self.tmp_path, self.clock, self.store, self.shared = tmp_path, clock, store, shared
        self.schedulers = []

    def mount(self, name, at=None):
        """Return what machine *name* sees: a link to what is shared, or else to its own disk below the mount."""
        link, own = self.tmp_path / name, self.tmp_path / f"disk-of-{name}"
        for part in ("exchange", "warehouse"):
            (own / part).mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(at or self.shared)
        return link

    def unmount(self, name):
        return self.mount(name, self.tmp_path / f"disk-of-{name}")

    def machine(self, name):
        link = self.tmp_path / name
        return Machine(name, self.clock, link / "exchange", link / "warehouse")

    async def scheduler(self, name, *, looks=True):
        made = SchedulerMachine(
            name, self.clock, MemoryBackend(self.store), self.tmp_path / name / "exchange", looks=looks
        )
        await made.start()
        self.schedulers.append(made)
        return made

    async def start(self):
        """Return a scheduler that sees the exchange directory, and an executor that has registered with it."""
        for name in ("s", "a"):
            self.mount(name)
        s = await self.scheduler("s")
        await s.look(3)
        a = self.machine("a")
        await a.register(s.app)
        return s, a

    async def known(self, name=EXCHANGE):
        found = await MemoryBackend(self.store).get(Keyspace.Places, name)
        return None if found is None else PlaceRecord.decoded(found.value, name)


def states(scheduler):
    return {info.executor_id: (info.state, info.reason) for info in scheduler.app.executors.infos()}


async def ended(world, s, *names):
    """End executors, and let their records say so."""
    for name in names:
        record = s.app.executors.registry.find(name)
        await s.app.executors.deregister(name, record.incarnation, "it left")
