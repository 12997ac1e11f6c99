"""Watches whether this executor sees the directories that it shares, and carries what is said of them to schedulers."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

from onager.executor.exchange.seen_places import SeenPlaces
from onager.protocol import onager_pb2 as pb
from onager.waiting import is_set_within

_LOOK_S: Final = 5.0
_UNSETTLED_S: Final = 1.0
"""How often it looks while a directory is not seen."""


InThread = Callable[[Callable[[], list[pb.PlaceMark]]], Awaitable[list[pb.PlaceMark]]]
"""Runs a function in a thread that the disk may hold up."""


class PlaceWatch:
    """The shared directories of one executor."""

    def __init__(
        self, places: SeenPlaces, in_thread: InThread, *, beat: Callable[[], None], on_change: Callable[[], None]
    ) -> None:
        """Make it; *beat* sends a heartbeat soon, *on_change* is called when tasks may run again, or may not."""
        self._places = places
        self._in_thread = in_thread
        self._beat = beat
        self._on_change = on_change
        self._verdicts: dict[str, pb.PlaceVerdict] = {}
        self._wanted: dict[str, list[pb.PlaceMark]] = {name: [] for name in places.names}
        self._looked_for: list[pb.PlaceMark] = []
        self._wakes = {name: asyncio.Event() for name in places.names}

    @property
    def may_work(self) -> bool:
        """Whether tasks may run here: the exchange directory is seen, as far as anybody judges."""
        return self._places.may_work

    async def run(self) -> None:
        """Look for ever, at each place by itself: one whose disk hangs holds up no other."""
        await asyncio.gather(*map(self._watch, self._places.names))

    async def _watch(self, name: str) -> None:
        places, wake = self._places, self._wakes[name]
        while True:
            before, could_work = places.glance(name), places.may_work
            verdict = self._verdicts.pop(name, None)
            wanted, self._wanted[name] = self._wanted[name], []
            found = await self._in_thread(partial(_act, places, name, verdict, wanted))
            self._looked_for += found
            if found or places.glance(name) != before:
                self._beat()
            if places.may_work != could_work:
                self._on_change()
            await is_set_within(wake, _LOOK_S if places.are_settled else _UNSETTLED_S)
            wake.clear()

    def doubt(self) -> None:
        """Look at once: a task has failed."""
        if not self._places.are_settled:
            self._on_change()
            self._wake_all()

    def add_to(self, request: pb.RegisterExecutorRequest | pb.HeartbeatRequest) -> None:
        """Add what was seen last, and to a heartbeat what was looked for."""
        request.places.extend(self._places.views())
        if isinstance(request, pb.HeartbeatRequest):
            request.looked_for.extend(self._looked_for)
            self._looked_for = []

    def take(self, answer: pb.RegisterExecutorResponse | pb.HeartbeatResponse) -> None:
        """Take what a scheduler says of the directories, and what it asks to look for."""
        is_news = self._places.take(answer.places)
        look_for = answer.look_for if isinstance(answer, pb.HeartbeatResponse) else ()
        for mark in look_for:
            if mark.place in self._wanted:
                self._wanted[mark.place].append(mark)
        if is_news:
            self._on_change()
        makes = [verdict for verdict in answer.places if verdict.new_id and self._places.may_make(verdict.name)]
        settled = [verdict for verdict in answer.places if verdict.generation]
        self._verdicts = {verdict.name: verdict for verdict in (*makes, *settled)}
        if is_news or look_for or makes:
            self._wake_all()

    def _wake_all(self) -> None:
        for wake in self._wakes.values():
            wake.set()


def _act(
    places: SeenPlaces, name: str, verdict: pb.PlaceVerdict | None, wanted: Iterable[pb.PlaceMark]
) -> list[pb.PlaceMark]:
    if verdict is not None:
        places.obey([verdict])
    found = places.find(wanted)
    places.look(name)
    return found
