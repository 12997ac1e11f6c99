"""Clean-ups that schedulers ask for: which are in progress, and which are done and not reported yet."""

from collections.abc import Awaitable, Callable, Coroutine, Iterable

from onager.ids import JobId
from onager.protocol import onager_pb2 as pb


class CleanUps:
    """The clean-ups of one executor's life.

    Polls and heartbeats tell which are done, until one of them is answered. A job may be cleaned up twice, so an
    answer settles what was done before its request was made, and not the job.
    """

    def __init__(
        self,
        clean_up: Callable[[pb.CleanUp], Awaitable[bool]],
        spawn: Callable[[Coroutine[None, None, None]], object],
    ) -> None:
        """Make it for an executor in which *clean_up* removes files and returns whether to report that."""
        self._clean_up = clean_up
        self._spawn = spawn
        self._in_progress: set[bytes] = set()
        """Serialized: a long one is asked for again and again."""
        self._done: dict[int, JobId] = {}
        """By the number of those done before, in this order."""
        self._number = 0

    def take(self, asked: Iterable[pb.CleanUp]) -> None:
        """Begin clean-ups."""
        for request in asked:
            self._spawn(self._carry_out(request))

    def unreported(self) -> tuple[list[JobId], int]:
        """Return the jobs to tell of, and the number for `note_answered` once that is answered."""
        return list(self._done.values()), self._number

    def note_answered(self, number: int) -> None:
        """Forget what was done by the time that `unreported` returned *number*."""
        for done in [each for each in self._done if each < number]:
            del self._done[done]

    async def _carry_out(self, request: pb.CleanUp) -> None:
        asked = request.SerializeToString(deterministic=True)
        if asked in self._in_progress:
            return
        self._in_progress.add(asked)
        try:
            is_to_be_reported = await self._clean_up(request)
        finally:
            self._in_progress.discard(asked)
        if is_to_be_reported:
            self._done[self._number] = JobId(request.job_id)
            self._number += 1
