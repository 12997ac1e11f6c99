"""A damaged record in the store: it must stop its own job, and nothing else."""

import random  # noqa: TID251 seeded
from typing import TYPE_CHECKING, Final

from onager.errors import StateCorruptError
from onager.state_backend import Keyspace
from onager.state_backend.local import table

if TYPE_CHECKING:
    from tests.simulation.world import World

_OFTEN: Final = 0.08
_RECORDS: Final = (Keyspace.JobLog, Keyspace.ActiveJobs, Keyspace.GraphChunks, Keyspace.JobHeads)
_LATE: Final = 0.15
_RECORDS_OF_ENDED: Final = (Keyspace.JobHeads, Keyspace.JobHeads, Keyspace.CompletedJobs, Keyspace.GraphChunks)
_OF_PROGRAMS: Final = ("program", "connect-")
"""How ids begin of scripts, programs, and their calls: of these nothing is damaged."""
REPORTED_OF_IT: Final = frozenset({"job_record_damaged", "job_head_unreadable", "batch_not_kept"})
"""What schedulers log as errors, and rightly."""


class Damage:
    """At most one damaged record per simulation."""

    def __init__(self, world: "World", seed: int) -> None:
        self._world = world
        self._rng = random.Random(f"damage {seed}")
        self._is_due = self._rng.random() < _OFTEN
        self._keyspace = self._rng.choice(_RECORDS)
        self.job_id: str | None = None
        """Whose record it was."""

    def rest(self) -> None:
        """Damage nothing while jobs run."""
        self._is_due = False

    def strike(self) -> None:
        """Damage a record of a running job, once, if there is one."""
        if not self._is_due or self._rng.random() < 0.5:
            return
        jobs = [j for j in self._world.observer.jobs.values() if not j.job_id.startswith(_OF_PROGRAMS)]
        active = sorted(j.job_id for j in jobs if j.graph and j.graph.is_active)
        if not active:
            return
        self._spoil(self._rng.choice(active), self._keyspace)

    def strike_late(self) -> None:
        """Damage a record of a job that has ended, if none is damaged yet."""
        jobs = [j for j in self._world.observer.jobs.values() if not j.job_id.startswith(_OF_PROGRAMS)]
        ended = sorted(j.job_id for j in jobs if j.final)
        if self.job_id is None and ended and self._rng.random() < _LATE:
            self._spoil(self._rng.choice(ended), self._rng.choice(_RECORDS_OF_ENDED))

    def _spoil(self, job_id: str, keyspace: Keyspace) -> None:
        records = self._world.store._table._records
        head = table.data_key(keyspace, job_id)
        mine = sorted(raw for raw in records if raw == head or raw.startswith(head + b"/"))
        if not mine:
            return
        self._is_due, self.job_id = False, job_id
        self._world.observer.damaged.add(job_id)
        raw = self._rng.choice(mine)
        whole = records[raw]
        value = table.value_of(whole)
        spoilt = value[: len(value) // 2] + self._rng.randbytes(8)
        records[raw] = whole[: len(whole) - len(value)] + spoilt
        self._world.trace(f"the record {raw!r} rots")

    def is_of(self, job_id: str, error: Exception | None = None) -> bool:
        """Return whether the job may have failed because of it; for an error, whether it is the expected one."""
        return job_id == self.job_id and (error is None or isinstance(error, StateCorruptError))
