"""What this replica holds of push executors: slots in its hand, and the tasks that it has launched into others."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from onager.ids import ExecutorId, Incarnation, JobId, TaskKey


class _Launched:
    """Launched tasks, and since when by the steady clock; found by their job, too."""

    def __init__(self) -> None:
        self._jobs: dict[JobId, dict[TaskKey, float]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[tuple[TaskKey, float]]:
        return (item for tasks in list(self._jobs.values()) for item in list(tasks.items()))

    def get(self, key: TaskKey) -> float | None:
        return self._jobs.get(key.job_id, {}).get(key)

    def of(self, job_id: JobId) -> list[TaskKey]:
        return list(self._jobs.get(job_id, ()))

    def put(self, key: TaskKey, since_s: float) -> None:
        tasks = self._jobs.setdefault(key.job_id, {})
        self._size += key not in tasks
        tasks[key] = since_s

    def pop(self, key: TaskKey) -> float | None:
        tasks = self._jobs.get(key.job_id, {})
        since_s = tasks.pop(key, None)
        if since_s is not None:
            self._size -= 1
            if not tasks:
                del self._jobs[key.job_id]
        return since_s


@dataclass(slots=True)
class _Account:
    incarnation: Incarnation
    in_hand: int = 0
    launched: _Launched = field(default_factory=_Launched)
    reporting: dict[TaskKey, float] = field(default_factory=dict)
    """Reported, and not yet known to be stored."""

    @property
    def held(self) -> int:
        return self.in_hand + len(self.launched) + len(self.reporting)


class SlotBooks:
    """Books of slots, by executor; pure."""

    def __init__(self) -> None:
        self._accounts: dict[ExecutorId, _Account] = {}
        self._on_change: Callable[[ExecutorId], None] = lambda _: None

    def listen(self, listener: Callable[[ExecutorId], None]) -> None:
        """Call *listener* whenever the number of an executor's slots that are held has changed by itself."""
        self._on_change = listener

    def held(self, executor_id: ExecutorId, incarnation: Incarnation) -> int:
        """Return how many slots of this life are held."""
        account = self._find(executor_id, incarnation)
        return 0 if account is None else account.held

    def has(self, executor_id: ExecutorId, key: TaskKey) -> bool:
        """Return whether the task is in the books."""
        account = self._accounts.get(executor_id)
        return account is not None and (account.launched.get(key) is not None or key in account.reporting)

    def since_s(self, executor_id: ExecutorId, key: TaskKey) -> float | None:
        """Return since when a launched task is in the books, by the steady clock; None when it is not."""
        account = self._accounts.get(executor_id)
        return None if account is None else account.launched.get(key)

    def launched(self) -> Iterator[tuple[ExecutorId, Incarnation, TaskKey, float]]:
        """Yield every launched task, and since when it is here."""
        for executor_id, account in list(self._accounts.items()):
            for key, since_s in account.launched:
                yield executor_id, account.incarnation, key, since_s

    def launched_at(self, executor_id: ExecutorId, incarnation: Incarnation) -> list[TaskKey]:
        """Return the launched tasks of one life."""
        account = self._find(executor_id, incarnation)
        return [] if account is None else [key for key, _ in account.launched]

    def lives(self) -> list[tuple[ExecutorId, Incarnation]]:
        """Return the lives of executors of which there are books."""
        return [(executor_id, account.incarnation) for executor_id, account in self._accounts.items()]

    # ---------------------------------------------------------------- movements

    def take_in_hand(self, executor_id: ExecutorId, incarnation: Incarnation, slots: int) -> None:
        """Note slots that were reserved."""
        self._account(executor_id, incarnation).in_hand += slots

    def give_back(self, executor_id: ExecutorId, incarnation: Incarnation, slots: int) -> None:
        """Note that slots are in the hand no more; those of a life that is over need not be."""
        account = self._find(executor_id, incarnation)
        if account is not None:
            account.in_hand = max(0, account.in_hand - slots)
        self._on_change(executor_id)

    def launch(self, executor_id: ExecutorId, incarnation: Incarnation, keys: Iterable[TaskKey], now_s: float) -> None:
        """Note tasks that go into slots from the hand.

        One that was adopted meanwhile, because it seemed to be in nobody's books, has its slot twice: one is given up.
        """
        account = self._account(executor_id, incarnation)
        before = account.held
        for key in keys:
            if account.launched.get(key) is None:
                account.launched.put(key, now_s)
            account.in_hand = max(0, account.in_hand - 1)
        if account.held != before:
            self._on_change(executor_id)

    def adopt(self, executor_id: ExecutorId, incarnation: Incarnation, keys: Iterable[TaskKey], now_s: float) -> None:
        """Note tasks whose slots another replica held."""
        account = self._account(executor_id, incarnation)
        for key in keys:
            if key not in account.reporting:
                account.launched.put(key, now_s)
        self._on_change(executor_id)

    def forget(self, executor_id: ExecutorId, keys: Iterable[TaskKey]) -> int:
        """Strike out launched tasks whose slots are not ours any more; return how many there were."""
        account = self._accounts.get(executor_id)
        gone = 0 if account is None else sum(account.launched.pop(key) is not None for key in keys)
        if gone:
            self._on_change(executor_id)
        return gone

    def begin_report(self, executor_id: ExecutorId, incarnation: Incarnation, keys: Iterable[TaskKey]) -> set[TaskKey]:
        """Return which of *keys* are launched here, and keep them until `end_report`."""
        account = self._find(executor_id, incarnation)
        if account is None:
            return set()
        taken = {key: since_s for key in keys if (since_s := account.launched.pop(key)) is not None}
        account.reporting |= taken
        return set(taken)

    def end_report(
        self, executor_id: ExecutorId, incarnation: Incarnation, keys: Iterable[TaskKey], stored: set[TaskKey]
    ) -> int:
        """Put into the hand the slots of those of *keys* that are *stored*; return how many they are."""
        account = self._find(executor_id, incarnation)
        if account is None:
            return 0  # this life has ended meanwhile
        freed = 0
        for key in keys:
            since_s = account.reporting.pop(key, None)
            if since_s is None:
                continue  # its books were closed, and there are new ones
            if key in stored:
                account.in_hand += 1
                freed += 1
            else:
                account.launched.put(key, since_s)
        return freed

    def close(self, executor_id: ExecutorId, incarnation: Incarnation) -> None:
        """Close the books of a life that is over."""
        if self._find(executor_id, incarnation) is not None:
            del self._accounts[executor_id]

    def tasks_of(self, job_id: JobId) -> dict[tuple[ExecutorId, Incarnation], list[TaskKey]]:
        """Return the launched tasks of a job, by the executor that has them."""
        found: dict[tuple[ExecutorId, Incarnation], list[TaskKey]] = {}
        for executor_id, account in self._accounts.items():
            if keys := account.launched.of(job_id):
                found[executor_id, account.incarnation] = keys
        return found

    def _find(self, executor_id: ExecutorId, incarnation: Incarnation) -> _Account | None:
        account = self._accounts.get(executor_id)
        return account if account is not None and account.incarnation == incarnation else None

    def _account(self, executor_id: ExecutorId, incarnation: Incarnation) -> _Account:
        account = self._find(executor_id, incarnation)
        if account is None:
            account = self._accounts[executor_id] = _Account(incarnation)
        return account
