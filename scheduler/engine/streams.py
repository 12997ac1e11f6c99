"""Where the output of tasks is read that run at the same time as their readers."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from onager.execution_graph import ExecutionGraph, ExecutorLife, ExecutorSlot, is_streaming, streams_of
from onager.protocol import onager_pb2 as pb


def _nowhere(_: str, __: str) -> str:
    return ""


async def _nothing() -> None:
    return None


class Streams:
    """The addresses of executors for streams.

    *address* tells that of a life of an executor, empty where there is none as far as is known, *refresh* makes it know
    what is stored.
    """

    def __init__(
        self, address: Callable[[str, str], str] = _nowhere, refresh: Callable[[], Awaitable[object]] = _nothing
    ) -> None:
        self._address = address
        self._refresh = refresh

    def known(self, slot: ExecutorSlot) -> ExecutorSlot:
        """Return *slot* with what is known here of whether its executor can stream."""
        return replace(slot, can_stream=bool(self._address(slot.executor_id, slot.incarnation)))

    async def learn(self, graph: ExecutionGraph, stage_ids: Iterable[int]) -> None:
        """See to it that the addresses are known which tasks of these stages are told.

        An executor may have registered elsewhere a moment ago; one that is gone stays unknown.
        """
        lives = {life for stage_id in stage_ids for life in _lives_read_by(graph, stage_id)}
        if not all(self._address(*life) for life in lives):
            await self._refresh()

    def told(self, graph: ExecutionGraph, stage_id: int) -> list[pb.StreamedInput]:
        """Return what tasks of a streaming stage are told of those that they read from."""
        return [
            pb.StreamedInput(
                stage_id=source.stage_id,
                stage_attempt=source.stage_attempt,
                tasks=[
                    pb.StreamedTask(task_attempt=attempt, address=self._address(*life))
                    for attempt, life in source.tasks
                ],
            )
            for source in streams_of(graph, stage_id)
        ]


def _lives_read_by(graph: ExecutionGraph, stage_id: int) -> Iterable[ExecutorLife]:
    if is_streaming(graph, graph.stages[stage_id]):
        for source in streams_of(graph, stage_id):
            for _, life in source.tasks:
                yield life
