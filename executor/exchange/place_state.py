"""What an executor knows of one shared directory: what it saw there last, and what schedulers make of that."""

from dataclasses import dataclass

from onager.place_files import NOTHING, Seen
from onager.protocol import onager_pb2 as pb


@dataclass(frozen=True, slots=True)
class Home:
    """Where this process was admitted last, as of a look."""

    id: str
    generation: int
    mount: str


@dataclass(frozen=True, slots=True)
class Place:
    """One shared directory, as this executor knows it."""

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
    tried_s: float = 0.0
    """When that was."""
    mount: str = ""
    """The mount that it is on, as of the last look; only known where there are roots."""
    home: Home | None = None

    @property
    def wanted(self) -> str:
        """The id to look for."""
        return self.made if self.verdict is None else self.verdict.id or self.made

    @property
    def is_admitted(self) -> bool:
        """Whether schedulers have admitted this process by the mark that it has now."""
        return self.verdict is not None and self.verdict.admitted and self.judged_mark == self.mark

    @property
    def is_settled(self) -> bool:
        """Whether it is seen; or has no id, and this process cannot make one."""
        return self.verdict is None or (self.is_admitted and not self.lost) or bool(self.unwritten and not self.wanted)
