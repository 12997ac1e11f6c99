"""Pure: what to do about a process that says what it sees of a place, by what the store has of that place."""

from dataclasses import dataclass
from typing import Protocol

from onager.place_files import title


class KnownPlace(Protocol):
    """What the store has of a place."""

    @property
    def place_id(self) -> str:
        """Its id."""
        ...

    @property
    def generation(self) -> int:
        """The last generation that was made; 0: any will do, since it comes from a backup."""
        ...

    @property
    def generation_before(self) -> int:
        """The one before, as long as nobody has shown the last one; 0: somebody has."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a process sees of a place."""

    place: str
    path: str
    host: str
    wanted: str = ""
    """The id that it looked for."""
    id: str = ""
    """That id, if it is there."""
    generation: int = 0
    mark: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Make:
    """The place has no id yet: the process makes one in its directory."""


@dataclass(frozen=True, slots=True)
class Tell:
    """The process does not know yet which id to look for; it looks once it knows."""


@dataclass(frozen=True, slots=True)
class Begin:
    """The place has no id yet: what the process has made becomes it, and the process is admitted."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A process that was admitted before has to find the mark."""


@dataclass(frozen=True, slots=True)
class Renew:
    """No admitted process lives, and the directory has the last generation: the process makes the next one."""


@dataclass(frozen=True, slots=True)
class Admit:
    """The process may only read the place, and sees its last generation."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The process sees another directory, or none."""

    why: str


Decision = Make | Tell | Begin | Ask | Renew | Admit | Refuse


def judged(known: KnownPlace | None, view: View, *, has_witness: bool) -> Decision:
    """Return what to do; *has_witness*: whether a process lives that was admitted to the place before."""
    if known is None:
        return Begin() if view.id and not view.problem else Make()
    if view.wanted != known.place_id:
        return Tell()  # whatever it saw: the directory may have been made since
    if view.id != known.place_id or view.problem:
        return Refuse(other_text(view))
    if has_witness and view.mark:
        return Ask()
    if known.generation and view.generation not in {known.generation, known.generation_before} - {0}:
        return Refuse(copy_text(view, f"it has generation {view.generation}, and the cluster is at {known.generation}"))
    return Renew() if view.mark else Admit()


def other_text(view: View) -> str:
    """Return why a directory is refused that does not have the id of the place."""
    what = title(view.place)
    if view.problem:
        return f"{view.path} on {view.host}: {view.problem}; mount the volume that holds the cluster's {what} there"
    return (
        f"{view.path} on {view.host} is not the cluster's {what}: it lacks its id, so its volume is not mounted. "
        "Mount the volume that the other machines mount. Only if a new directory is to take its place for good: "
        f"onager state rm Places/{view.place} (docs/operations.md#places)"
    )


def copy_text(view: View, evidence: str) -> str:
    """Return why a directory is refused that has the id of the place."""
    what = title(view.place)
    return (
        f"{view.path} on {view.host} is a copy of the cluster's {what}, not that directory itself: {evidence}. Mount "
        "the volume there that the other machines mount. Only if the copy is to take its place for good: stop every "
        f"process, then onager state rm Places/{view.place} (docs/operations.md#places)"
    )
