"""Reserved slots, and the results of filling them, of reports and of lists."""

from collections.abc import Sequence
from dataclasses import dataclass

from onager.errors import DiskError
from onager.execution_graph import ExecutorSlot
from onager.ids import ExecutorId, Incarnation, JobId, TaskKey
from onager.protocol import onager_pb2 as pb


@dataclass(frozen=True, slots=True)
class ExecutorReservation:
    """A free slot of an executor that this scheduler holds, perhaps reserved for a job whose task has left it."""

    executor_id: ExecutorId
    incarnation: Incarnation
    list_number: int
    job_id: JobId | None = None
    is_empty: bool = False
    """Whether the executor holds no task."""

    @property
    def slot(self) -> ExecutorSlot:
        """Return the slot as the graph sees it."""
        return ExecutorSlot(self.executor_id, self.incarnation, self.list_number, is_empty=self.is_empty)

    @classmethod
    def of(cls, slot: ExecutorSlot, job_id: JobId | None = None) -> "ExecutorReservation":
        """Return *slot* as a reservation."""
        life = ExecutorId(slot.executor_id), Incarnation(slot.incarnation)
        return cls(*life, slot.list_number, job_id, is_empty=slot.is_empty)


@dataclass(frozen=True, slots=True)
class Launch:
    """Tasks of one stage that are assigned to an executor by a commit."""

    executor_id: str
    task_set: pb.TaskSet

    @property
    def tasks(self) -> int:
        """Return the number of tasks."""
        return len(self.task_set.tasks)


@dataclass(frozen=True, slots=True)
class Filled:
    """The result of filling reservations: launched tasks, and slots without a task."""

    launches: Sequence[Launch]
    unfilled: Sequence[ExecutorReservation]


@dataclass(frozen=True, slots=True)
class Updated:
    """The result of reports."""

    acknowledged: Sequence[TaskKey]
    """Applied or useless reports: never to be sent again."""
    launches: Sequence[Launch]
    """Tasks that filled freed slots in the same append."""
    reservations: Sequence[ExecutorReservation]
    """Freed slots to fill next, reserved for the job whose task left them."""
    disk_error: DiskError | None = None
    """Why reports are not acknowledged that a scheduler on another machine may be able to apply."""


@dataclass(frozen=True, slots=True)
class Compared:
    """What follows from the list of tasks that an executor holds."""

    launches: Sequence[Launch] = ()
    """Launches that never arrived, to be repeated."""
    unwanted: Sequence[TaskKey] = ()
    """Held tasks that no graph wants."""


def unfilled(reservations: Sequence[ExecutorReservation], launches: Sequence[Launch]) -> list[ExecutorReservation]:
    """Return those of *reservations* that *launches* left free."""
    given: dict[str, int] = {}
    for launch in launches:
        given[launch.executor_id] = given.get(launch.executor_id, 0) + launch.tasks
    left: list[ExecutorReservation] = []
    for reservation in reservations:
        if given.get(reservation.executor_id, 0) > 0:
            given[reservation.executor_id] -= 1
        else:
            left.append(reservation)
    return left
