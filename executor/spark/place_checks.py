"""Checks, around a planning or a publication, that the shared directories that it uses are seen."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from onager.errors import PlaceNotSeenError
from onager.executor.exchange.seen_places import SeenPlaces
from onager.place_files import EXCHANGE
from onager.protocol import onager_pb2 as pb

NoteRead = Callable[[Sequence[str]], None]
"""Takes the paths that a planning reads, as URIs."""


@contextmanager
def planning_in(places: SeenPlaces) -> Iterator[NoteRead]:
    """Plan inside the block; `PlaceNotSeenError` if something was read in a place that was not seen all the time.

    The block says what it reads. An error in it counts as that of a place that is not seen and may be its cause.
    """
    read: list[str] = []
    unseen = places.unseen()
    try:
        yield read.extend
    except Exception as error:
        unseen |= places.unseen()
        lost = places.first_lost() or places.named_in(str(error), unseen)
        missed = sorted(places.of(read) & unseen)
        if lost is not None or missed:
            raise lost or places.error_of(missed[0]) from error
        raise
    for name in sorted(places.of(read)):
        if name in unseen:
            raise places.error_of(name)
        places.check(name)


def check_planned(places: SeenPlaces, outcome: pb.PlanOutcome) -> None:
    """Raise `PlaceNotSeenError` if what was planned, and perhaps written already, is in a place that is not seen."""
    if outcome.HasField("fused_output") and not outcome.fused_output.inline:
        places.check(EXCHANGE)
    for path in (outcome.sink.path, *outcome.catalog.folders_made):
        places.check_path(path)


@contextmanager
def writing_at(places: SeenPlaces, path: str) -> Iterator[None]:
    """Write at *path* inside the block; `PlaceNotSeenError` if the place that it is in is not seen before and after."""
    places.check_path(path)
    try:
        yield
    except Exception as error:
        if (lost := places.behind(f"{error} {path}")) is not None:
            raise lost from error
        raise
    places.check_path(path)


@contextmanager
def cleaning_up(places: SeenPlaces, request: pb.CleanUp) -> Iterator[None]:
    """Remove files inside the block; `PlaceNotSeenError` if they are in places that are not seen before and after.

    What is not seen is not removed, and then another executor is asked.
    """
    if request.memory_only:
        yield
        return
    _check_removed(places, request)
    yield
    _check_removed(places, request)


def _check_removed(places: SeenPlaces, request: pb.CleanUp) -> None:
    places.check(EXCHANGE)
    for path in (request.sink.path, *request.folders):
        places.check_path(path)


def check_places(places: SeenPlaces, names: Collection[str]) -> None:
    """Raise `PlaceNotSeenError` unless all places *names* are seen now."""
    for name in sorted(names):
        places.check(name)


def check_task_set(places: SeenPlaces, task_set: pb.TaskSet) -> None:
    """Raise `PlaceNotSeenError` unless the directories that its tasks write are seen now, and the exchange."""
    places.check(EXCHANGE)
    if task_set.output.kind == "sink":
        places.check_path(task_set.sink.path)


def lost_place(
    places: SeenPlaces,
    task_set: pb.TaskSet,
    read: Collection[str],
    event: Mapping[str, Any],
    *,
    is_streamed: bool,
) -> PlaceNotSeenError | None:
    """Return the error of a directory that is not seen, if the outcome *event* of a task may be due to that.

    *read*: the places in which it reads files.
    """
    try:
        check_places(places, read)  # a file that is not there may count as an empty one
        if "failure" in event:
            return places.behind(event["failure"]["message"])
        if not (event["inline"] or is_streamed):  # else it wrote nothing
            check_task_set(places, task_set)
    except PlaceNotSeenError as error:
        return error
    return None
