"""The directories that this executor shares with others: whether it sees them, by what schedulers make of its marks."""

import os
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import structlog

from onager import place_files
from onager.clock import Clock
from onager.errors import PlaceNotSeenError
from onager.exchange_layout import has_scheme, local_path, location_path
from onager.ids import Incarnation
from onager.place_files import EXCHANGE, NOTHING, TITLES, Seen
from onager.protocol import onager_pb2 as pb

_NEW_MARK_S: Final = 10.0
"""How long a mark that nobody has found is kept."""
_HANGS_S: Final = 15.0
"""A disk that takes longer to answer counts as not seen: nothing can be found there for others, either. Work does not
call it: it would wait, too, even if it needs no file there."""
_TOUCH_S: Final = 3600.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Place:
    """One shared directory."""

    path: str
    spellings: frozenset[str]
    """The path as it was given, and without links as of the last look."""
    looked_for: str = ""
    """The id that the last look was for; since then `wanted` may have become another."""
    seen: Seen = NOTHING
    """What that look has found."""
    mark: str = ""
    """The name of this process's mark; empty: it has none there."""
    marked_s: float = 0.0
    touched_s: float = 0.0
    verdict: pb.PlaceVerdict | None = None
    """What schedulers make of it; None: none of them judges."""
    judged_mark: str | None = None
    """The mark that they have judged; None: it was missed since."""
    lost: str = ""
    """Why it is not seen any more, though schedulers have admitted this process."""
    made: str = ""
    """The id that this executor has made, because the place had none."""
    unwritten: str = ""
    """Why the id or the generation could not be written, so that it is logged once."""

    @property
    def wanted(self) -> str:
        """The id to look for."""
        return self.made if self.verdict is None else self.verdict.id or self.made

    @property
    def is_admitted(self) -> bool:
        """Whether schedulers have admitted this process by the mark that it has now."""
        return self.verdict is not None and self.verdict.admitted and self.judged_mark == self.mark


class SeenPlaces:
    """The places of one executor, by name. Methods that call the disk say so; all may be called from any thread."""

    def __init__(self, paths: Mapping[str, str], incarnation: Incarnation, clock: Clock) -> None:
        self._incarnation = incarnation
        self._clock = clock
        self._lock = threading.Lock()
        self._places = {name: _Place(path, frozenset({_absolute(path)})) for name, path in paths.items()}
        self._calls_s: dict[str, float] = {}
        """Since when the disk is called for a place, as long as it does not answer."""

    # ---------------------------------------------------------------- for the agent

    @property
    def names(self) -> list[str]:
        """Return the places."""
        return list(self._places)

    def look(self, *names: str) -> None:
        """Look at the places *names*, or all, and leave a mark in each that has an id; calls the disk."""
        for name in names or self._places:
            with self._calling(name):
                self._look(name)

    def glance(self, name: str) -> tuple[object, ...]:
        """Return what `views` says of a place, as of the last look."""
        place = self._places[name]
        return place.looked_for, place.seen, place.mark, place.lost

    def views(self) -> list[pb.PlaceView]:
        """Return what was seen last."""
        return [
            pb.PlaceView(
                name=name,
                path=place.path,
                id=place.seen.id,
                generation=place.seen.generation,
                mark=place.mark,
                problem=self._hangs(name) or place.seen.problem or place.lost,
                wanted=place.looked_for,
            )
            for name, place in self._places.items()
        ]

    def take(self, verdicts: Iterable[pb.PlaceVerdict]) -> bool:
        """Take what a scheduler makes of the views; return whether that is new."""
        is_new = False
        for verdict in verdicts:
            place = self._places.get(verdict.name)
            if place is None:
                continue
            judged_mark = verdict.mark if verdict.HasField("mark") else place.mark
            now = self._change(verdict.name, verdict=verdict, judged_mark=judged_mark)
            if place.verdict is None or _gist(place) != _gist(now):
                is_new = True
                _tell(now)
        return is_new

    def obey(self, verdicts: Iterable[pb.PlaceVerdict]) -> None:
        """Make the ids and generations that *verdicts* ask for; calls the disk."""
        for verdict in verdicts:
            place = self._places.get(verdict.name)
            if place is None:
                continue
            try:
                with self._calling(verdict.name):
                    self._obey(verdict, place)
            except OSError as error:
                if place.unwritten != str(error):
                    log.warning("place_not_written", place=verdict.name, path=place.path, error=str(error))
                    self._change(verdict.name, unwritten=str(error))

    def _obey(self, verdict: pb.PlaceVerdict, place: _Place) -> None:
        if verdict.new_id and not place.seen.id:
            self._make_id(verdict, place.path)
        is_behind = verdict.admitted and 0 < place.seen.generation < verdict.generation
        if is_behind and place.is_admitted and not self._problem(place):
            place_files.make_generation(place.path, verdict.id, verdict.generation)
        if place.made and verdict.id not in ("", place.made):
            place_files.remove_id(place.path, place.made, self._incarnation)  # another process was faster
            self._change(verdict.name, made="")

    def find(self, marks: Iterable[pb.PlaceMark]) -> list[pb.PlaceMark]:
        """Return which of *marks* are in this executor's directories, as far as that can be told; calls the disk."""
        found = []
        for mark in marks:
            place = self._places.get(mark.place)
            if place is None or place.verdict is None or not place.is_admitted:
                continue
            try:
                with self._calling(mark.place):
                    if self._problem(place):
                        continue
                    is_there = place_files.has_mark(place.path, mark.mark, place.verdict.id)
            except OSError:
                continue
            found.append(pb.PlaceMark(place=mark.place, mark=mark.mark, seen=is_there))
        return found

    @property
    def are_settled(self) -> bool:
        """Whether every place is seen, as far as schedulers judge."""
        return all(p.verdict is None or (p.is_admitted and not p.lost) for p in self._places.values())

    @property
    def may_work(self) -> bool:
        """Whether tasks may run here: the exchange directory is seen, as far as schedulers judge."""
        place = self._places.get(EXCHANGE)
        return place is None or place.verdict is None or (place.is_admitted and not place.lost)

    # ---------------------------------------------------------------- for the worker

    def check(self, name: str) -> None:
        """Raise `PlaceNotSeenError` unless the place *name* is seen now; calls the disk."""
        place = self._places.get(name)
        if place is None or place.verdict is None or not place.verdict.id:
            return  # nobody judges, or nobody could give the place an id
        if not place.is_admitted or self._hangs(name):
            raise self.error_of(name)
        if problem := self._problem(place):
            self._lose(name, problem)
            raise PlaceNotSeenError(name, _lost(name, place.path, problem))

    def check_path(self, path: str) -> None:
        """Raise `PlaceNotSeenError` if *path* is in a place that is not seen now; calls the disk."""
        for name in self.of([path]):
            self.check(name)

    def of(self, paths: Iterable[str]) -> set[str]:
        """Return the places in which some of *paths* are; they may be URIs."""
        local = [location_path(path) if path.startswith("file:") else path for path in paths if not has_scheme(path)]
        return {
            name
            for name, place in self._places.items()
            if any(_is_in(path, root) for root in place.spellings for path in local)
        }

    def unseen(self) -> set[str]:
        """Return the places that are not seen now; calls the disk."""
        return {name for name in self._places if not self._is_seen(name)}

    def first_lost(self) -> PlaceNotSeenError | None:
        """Return the error of a place that was seen, and is not any more; calls the disk."""
        for name, place in self._places.items():
            if place.verdict is not None and place.verdict.admitted:  # perhaps by a mark that was missed since
                try:
                    self.check(name)
                except PlaceNotSeenError as error:
                    return error
        return None

    def named_in(self, text: str, names: Collection[str]) -> PlaceNotSeenError | None:
        """Return the error of the first of the places *names*, which are not seen, whose path is in *text*."""
        for name in sorted(names):
            if any(root in text for root in self._places[name].spellings):
                return self.error_of(name)
        return None

    def error_of(self, name: str) -> PlaceNotSeenError:
        """Return the error of a place that is not seen, or was not a moment ago."""
        place = self._places[name]
        why = "" if place.verdict is None else place.verdict.why
        return PlaceNotSeenError(name, _not_admitted(name, place.path, self._hangs(name) or why or place.lost))

    # ---------------------------------------------------------------- the disk

    def _is_seen(self, name: str) -> bool:
        try:
            self.check(name)
        except PlaceNotSeenError:
            return False
        return True

    def _problem(self, place: _Place) -> str:
        """Return why an admitted process does not see the place now; empty: it sees it."""
        assert place.verdict is not None
        try:
            if place.mark:
                is_seen = place_files.has_mark(place.path, place.mark, place.verdict.id)
            else:
                is_seen = place_files.has_id(place.path, place.verdict.id)
        except OSError as error:
            return f"it cannot be read ({error.strerror or error})"
        return "" if is_seen else "another directory is there now, or none"

    def _look(self, name: str) -> None:
        place = self._places[name]
        self._change(name, spellings=frozenset({_absolute(place.path), os.path.realpath(_absolute(place.path))}))
        wanted, mark = place.wanted, ""
        seen = place_files.look(place.path, wanted)
        now_s = self._clock.monotonic_s()
        if seen.id:
            is_old = not place.is_admitted and now_s - place.marked_s > _NEW_MARK_S
            try:
                mark = place_files.kept_mark(place.path, self._incarnation, seen.id, place.mark, is_old=is_old)
            except OSError as error:
                seen = Seen(problem=f"it cannot be used ({error.strerror or error})")
        if not seen.id:
            self._change(name, looked_for=wanted, seen=seen, mark="", judged_mark=None)
            return
        marked_s = place.marked_s if mark == place.mark else now_s
        place = self._change(name, looked_for=wanted, seen=seen, mark=mark, marked_s=marked_s, lost="")
        if mark and place.is_admitted and now_s - place.touched_s > _TOUCH_S:
            try:
                place_files.remove_old_marks(place.path, mark, seen.id)
            except OSError as error:
                log.debug("marks_not_removed", place=name, path=place.path, error=str(error))
            self._change(name, touched_s=now_s)

    @contextmanager
    def _calling(self, name: str) -> Iterator[None]:
        """Call the disk inside the block, from one thread at a time for each place."""
        self._calls_s[name] = self._clock.monotonic_s()
        try:
            yield
        finally:
            del self._calls_s[name]

    def _hangs(self, name: str) -> str:
        since_s = self._calls_s.get(name)
        is_long = since_s is not None and self._clock.monotonic_s() - since_s > _HANGS_S
        return f"it has not answered for {_HANGS_S:.0f} s" if is_long else ""

    def _make_id(self, verdict: pb.PlaceVerdict, path: str) -> None:
        if verdict.name != EXCHANGE:  # which is made by a scheduler, or by hand
            Path(path).mkdir(parents=True, exist_ok=True)
        place_files.make_id(path, verdict.new_id)
        self._change(verdict.name, made=verdict.new_id)

    def _lose(self, name: str, problem: str) -> None:
        place = self._places[name]
        if not place.lost:
            log.error("place_lost", place=name, path=place.path, why=problem, advice="mount the volume again")
            self._change(name, lost=problem)

    def _change(self, name: str, **change: object) -> _Place:
        with self._lock:
            self._places[name] = replace(self._places[name], **change)  # type: ignore[arg-type]
            return self._places[name]


def _is_in(path: str, root: str) -> bool:
    return path.rstrip("/") == root or path.startswith(f"{root}/")


def _absolute(path: str) -> str:
    return str(Path(local_path(path)).absolute())


def _gist(place: _Place) -> tuple[bool, str, str]:
    """Return what of a verdict is news when it changes."""
    assert place.verdict is not None
    return place.is_admitted, place.verdict.why, place.verdict.id


def _tell(place: _Place) -> None:
    verdict = place.verdict
    assert verdict is not None
    if place.is_admitted:
        log.info("place_seen", place=verdict.name, path=place.path, id=verdict.id)
    elif verdict.why:
        log.error("place_not_seen", place=verdict.name, path=place.path, why=verdict.why)


def _not_admitted(name: str, path: str, why: str) -> str:
    return f"the {TITLES.get(name, name)} {path} is not seen here: {why or 'it is not known yet whose directory it is'}"


def _lost(name: str, path: str, problem: str) -> str:
    return f"the {TITLES.get(name, name)} {path} was lost while this executor ran: {problem}; mount its volume again"
