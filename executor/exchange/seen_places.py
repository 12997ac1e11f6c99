"""The directories that this executor shares with others: whether it sees them, by what schedulers make of its marks."""

import errno
import os
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog

from onager import place_files
from onager.clock import Clock, SystemClock
from onager.errors import PlaceNotSeenError
from onager.exchange_layout import has_scheme, local_path, location_path
from onager.executor.exchange.place_state import Home, Place
from onager.ids import Incarnation
from onager.place_files import EXCHANGE, READ_ONLY, WAREHOUSE, Seen, is_named, is_root, plain_path, title
from onager.protocol import onager_pb2 as pb

_NEW_MARK_S: Final = 10.0
"""How long a mark that nobody has found is kept."""
_HANGS_S: Final = 15.0
"""A disk that takes longer to answer counts as not seen: nothing can be found there for others, either. Work does not
call it: it would wait, too, even if it needs no file there."""
_TOUCH_S: Final = 3600.0
_TRY_AGAIN_S: Final = 60.0
"""Where an id could not be made, as in a directory that is only read, it is tried again after this."""

_KEEP: Final = "leave .onager-place in place when the directory is replaced (docs/operations.md#places)"

log = structlog.get_logger()


class SeenPlaces:
    """The places of one executor, by name. Methods that call the disk say so; all may be called from any thread."""

    def __init__(self, paths: Mapping[str, str], incarnation: Incarnation, clock: Clock) -> None:
        self._incarnation = incarnation
        self._clock = clock
        self._lock = threading.Lock()
        self._places = {name: Place(path, frozenset({plain_path(path)})) for name, path in paths.items()}
        self._has_roots = any(map(is_root, paths))
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
        return [self._view(name, place) for name, place in self._places.items()]

    def _view(self, name: str, place: Place) -> pb.PlaceView:
        hangs = self._hangs(name)
        return pb.PlaceView(
            name=name,
            path=place.path,
            id=place.seen.id,
            generation=place.seen.generation,
            mark=place.mark,
            problem=hangs or place.seen.problem or place.lost,
            wanted=place.wanted if hangs else place.looked_for,
        )

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
                self._note_unwritten(verdict.name, error)

    def may_make(self, name: str) -> bool:
        """Return whether to try now to make the id of a place that has none."""
        place = self._places.get(name)
        if place is None or not place.unwritten or name == EXCHANGE:
            return place is not None
        return self._clock.monotonic_s() - place.tried_s > _TRY_AGAIN_S

    def _obey(self, verdict: pb.PlaceVerdict, place: Place) -> None:
        if verdict.new_id and not place.seen.id:
            self._make_id(verdict, place.path)
        is_behind = verdict.admitted and 0 < place.seen.generation < verdict.generation
        if is_behind and place.is_admitted and not self._problem(place):
            place_files.make_generation(place.path, verdict.id, verdict.generation)
        if place.made and verdict.id not in ("", place.made):
            place_files.remove_id(place.path, place.made, self._incarnation)  # another process was faster
            self._change(verdict.name, made="")

    def find(self, marks: Iterable[pb.PlaceMark]) -> list[pb.PlaceMark]:
        """Return which of *marks* are in this executor's directories, as far as it can see; calls the disk."""
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
        return all(place.is_settled or name == EXCHANGE for name, place in self._places.items()) and self.may_work

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
        """Return the places in which some of *paths* are, which may be URIs.

        Where there are roots, paths in no place may lead to one by a link; then this calls the disk.
        """
        local = [location_path(path) if path.startswith("file:") else path for path in paths if not has_scheme(path)]
        names: set[str] = set()
        for path in local:
            plain = f"/{os.path.abspath(path).strip('/')}"  # noqa: PTH100 - as text
            names |= self._holding(plain) or (self._holding(os.path.realpath(plain)) if self._has_roots else set())
        return names

    def _holding(self, path: str) -> set[str]:
        return {name for name, each in self._places.items() if any(_is_in(path, root) for root in each.spellings)}

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
            if any(is_named(root, text) for root in self._places[name].spellings):
                return self.error_of(name)
        return None

    def behind(self, message: str) -> PlaceNotSeenError | None:
        """Return the error of a place that was lost, or is not seen and whose path is in *message*; calls the disk.

        Schedulers may have refused a place since, because this executor reported its loss.
        """
        return self.first_lost() or self.named_in(message, self.unseen())

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

    def _problem(self, place: Place) -> str:
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
        plain = plain_path(place.path)
        # Asked before the look: what is seen on a mount that is lost meanwhile is not taken for another one's.
        mount = place_files.mount_of(place.path) if self._has_roots else ""
        is_elsewhere = place.home is not None and mount not in ("", place.home.mount)
        home = None if is_elsewhere else place.home  # what is mounted after it was lost may be another volume
        place = self._change(name, spellings=frozenset({plain, os.path.realpath(plain)}), mount=mount, home=home)
        wanted, mark = place.wanted, ""
        seen = place_files.look(place.path, wanted)
        if is_root(name) and self._is_swapped(place, seen, mount):
            seen = self._made_again(name, place, seen)
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
        if place.is_admitted and place.verdict is not None:
            generation = max(seen.generation, place.verdict.generation)
            self._change(name, home=Home(seen.id, generation, mount))
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
        if verdict.name == WAREHOUSE:  # others are made by a scheduler, or by hand
            Path(path).mkdir(parents=True, exist_ok=True)
        if is_root(verdict.name) and (outer := self._outer(verdict.name)):
            # Jobs may replace the directory, and its id with it.
            if outer[0].wanted:
                why = f"it is part of {outer[0].path}"
                self._change(verdict.name, unwritten=why, tried_s=self._clock.monotonic_s())
            return  # the outer one may get an id yet
        place_files.make_id(path, verdict.new_id)
        self._change(verdict.name, made=verdict.new_id, unwritten="")

    def _outer(self, name: str) -> list[Place]:
        """Return the places that hold a root, on the same mount as of the last looks, and have an id or may get one.

        Those that have one come first.
        """
        real, mount = os.path.realpath(plain_path(self._places[name].path)), self._places[name].mount
        holding = [self._places[each] for each in self._holding(real) - {name}]
        outer = [each for each in holding if each.mount == mount != "" and real not in each.spellings]
        return sorted((each for each in outer if each.wanted or not each.unwritten), key=lambda each: not each.wanted)

    def _is_swapped(self, place: Place, seen: Seen, mount: str) -> bool:
        """Return whether a root's owner has removed its id, or put another directory there: the mount is still there.

        An empty directory may be that of a volume that its server has lost.
        """
        home = place.home
        if home is None or home.id != place.wanted or seen.problem or seen.generation >= home.generation:
            return False
        try:
            is_same = mount == home.mount == place_files.mount_of(place.path) != ""
            return is_same and place_files.holds_something(Path(local_path(place.path)))
        except OSError:
            return False

    def _made_again(self, name: str, place: Place, seen: Seen) -> Seen:
        """Make the id again; as after any loss, others have to find this process's new mark there."""
        assert place.home is not None
        try:
            place_files.make_id(place.path, place.home.id)
            place_files.make_generation(place.path, place.home.id, place.home.generation)
        except OSError as error:
            self._note_unwritten(name, error)
            return seen
        log.warning("place_id_made_again", place=name, path=place.path, id=place.home.id, advice=_KEEP)
        return place_files.look(place.path, place.home.id)

    def _note_unwritten(self, name: str, error: OSError) -> None:
        place = self._places[name]
        if place.unwritten != str(error):
            # Files that jobs only read may lie where nobody may write, or need not be there at all.
            is_usual = is_root(name) and error.errno in {errno.ENOENT, *READ_ONLY}
            tell = log.info if is_usual else log.warning
            tell("place_not_written", place=name, path=place.path, error=str(error))
        self._change(name, unwritten=str(error), tried_s=self._clock.monotonic_s())

    def _lose(self, name: str, problem: str) -> None:
        place = self._places[name]
        if not place.lost:
            log.error("place_lost", place=name, path=place.path, why=problem, advice="mount the volume again")
            self._change(name, lost=problem)

    def _change(self, name: str, **change: object) -> Place:
        with self._lock:
            self._places[name] = replace(self._places[name], **change)  # type: ignore[arg-type]
            return self._places[name]


NO_PLACES: Final = SeenPlaces({}, Incarnation(""), SystemClock())
"""Nothing is shared."""


def _is_in(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root}/")


def _gist(place: Place) -> tuple[bool, str, str]:
    """Return what of a verdict is news when it changes."""
    assert place.verdict is not None
    return place.is_admitted, place.verdict.why, place.verdict.id


def _tell(place: Place) -> None:
    verdict = place.verdict
    assert verdict is not None
    if place.is_admitted:
        log.info("place_seen", place=verdict.name, path=place.path, id=verdict.id)
    elif verdict.why:
        log.error("place_not_seen", place=verdict.name, path=place.path, why=verdict.why)


def _not_admitted(name: str, path: str, why: str) -> str:
    return f"the {title(name)} {path} is not seen here: {why or 'it is not known yet whose directory it is'}"


def _lost(name: str, path: str, problem: str) -> str:
    return f"the {title(name)} {path} was lost while this executor ran: {problem}; mount its volume again"
