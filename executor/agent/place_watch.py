"""Watches whether this executor sees the directories that it shares, and carries what is said of them to schedulers."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

from onager.executor.exchange.seen_places import SeenPlaces
from onager.protocol import onager_pb2 as pb

_LOOK_S: Final = 5.0
_UNSETTLED_S: Final = 1.0
"""How often it looks while a directory is not seen."""


InThread = Callable[[Callable[[], list[pb.PlaceMark]]], Awaitable[list[pb.PlaceMark]]]
"""Runs a function in a thread that the disk may hold up."""


class PlaceWatch:
    """The shared directories of one executor, if it is to look at any."""

    def __init__(
        self, places: SeenPlaces | None, in_thread: InThread, *, beat: Callable[[], None], on_change: Callable[[], None]
    ) -> None:
        """Make it; *beat* sends a heartbeat soon, *on_change* is called when tasks may run again, or may not."""
        self._places = places
        self._in_thread = in_thread
        self._beat = beat
        self._on_change = on_change
        self._verdicts: list[pb.PlaceVerdict] = []
        self._wanted: list[pb.PlaceMark] = []
        self._looked_for: list[pb.PlaceMark] = []
        self._wake = asyncio.Event()

    @property
    def may_work(self) -> bool:
        """Whether tasks may run here: the exchange directory is seen, as far as anybody judges."""
        return self._places is None or self._places.may_work

    async def run(self) -> None:
        """Look for ever."""
        places = self._places
        if places is None:
            return
        while True:
            before, could_work = places.views(), places.may_work
            verdicts, self._verdicts = self._verdicts, []
            wanted, self._wanted = self._wanted, []
            self._looked_for += await self._in_thread(partial(_act, places, verdicts, wanted))
            if self._looked_for or places.views() != before:
                self._beat()
            if places.may_work != could_work:
                self._on_change()
            try:
                async with asyncio.timeout(_LOOK_S if places.are_settled else _UNSETTLED_S):
                    await self._wake.wait()
            except TimeoutError:
                continue
            self._wake.clear()

    def doubt(self) -> None:
        """Look at once: a task has failed."""
        if self._places is not None and not self._places.are_settled:
            self._on_change()
            self._wake.set()

    def add_to(self, request: pb.RegisterExecutorRequest | pb.HeartbeatRequest) -> None:
        """Add what was seen last, and to a heartbeat what was looked for."""
        if self._places is None:
            return
        request.places.extend(self._places.views())
        if isinstance(request, pb.HeartbeatRequest):
            request.looked_for.extend(self._looked_for)
            self._looked_for = []

    def take(self, answer: pb.RegisterExecutorResponse | pb.HeartbeatResponse) -> None:
        """Take what a scheduler says of the directories, and what it asks to look for."""
        if self._places is None:
            return
        is_news = self._places.take(answer.places)
        if isinstance(answer, pb.HeartbeatResponse):
            self._wanted.extend(answer.look_for)
        if is_news:
            self._on_change()
        self._verdicts = [verdict for verdict in answer.places if verdict.new_id or verdict.generation]
        if is_news or self._wanted or any(verdict.new_id for verdict in answer.places):
            self._wake.set()


def _act(places: SeenPlaces, verdicts: Iterable[pb.PlaceVerdict], wanted: Iterable[pb.PlaceMark]) -> list[pb.PlaceMark]:
    places.obey(verdicts)
    found = places.find(wanted)
    places.look()
    return found
