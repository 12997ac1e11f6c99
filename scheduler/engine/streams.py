"""Addresses for the output of tasks that run at the same time as their readers."""

from collections.abc import Awaitable, Callable, Iterable

from msgspec.structs import replace

from onager.execution_graph import ExecutionGraph, ExecutorLife, ExecutorSlot, is_streaming, streams_of
from onager.protocol import onager_pb2 as pb


def _nowhere(_: str, __: str) -> str:
    return ""


async def _nothing() -> None:
    return None


class Streams:
    """The addresses of executors for streams.

    *address* returns that of a life of an executor, empty if none is known; *refresh* updates it from the store.
    """

    def __init__(
        self, address: Callable[[str, str], str] = _nowhere, refresh: Callable[[], Awaitable[object]] = _nothing
    ) -> None:
        self._address = address
        self._refresh = refresh

    def known(self, slot: ExecutorSlot) -> ExecutorSlot:
        """Return *slot* with whether its executor can stream, as far as is known here."""
        return replace(slot, can_stream=bool(self._address(slot.executor_id, slot.incarnation)))

    async def learn(self, graph: ExecutionGraph, stage_ids: Iterable[int]) -> None:
        """Make sure that the addresses sent to tasks of these stages are known.

        An executor may just have registered with another scheduler; one that is gone stays unknown.
        """
        lives = {life for stage_id in stage_ids for life in _lives_read_by(graph, stage_id)}
        if not all(self._address(*life) for life in lives):
            await self._refresh()

    def inputs_of(self, graph: ExecutionGraph, stage_id: int) -> list[pb.StreamedInput]:
        """Return what tasks of a streaming stage are sent about the tasks that they read from."""
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
