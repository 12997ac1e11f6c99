"""What the store has of shared directories, and of what an executor sees of them."""

from typing import Final

from pydantic import BaseModel, ConfigDict

from onager.scheduler.records import Record

WAITS: Final = "it waits until a process that sees the directory has found its mark there"


class PlaceRecord(Record):
    """A directory that the cluster shares, by what it is to the cluster."""

    place_id: str
    generation: int
    """The last one that was made; 0: any will do, since this comes from a backup."""
    generation_before: int = 0
    """The one before, as long as nobody has shown the last one."""


class PlaceClaim(BaseModel):
    """What an executor sees of a place, and whether it is the place."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    path: str
    mark: str = ""
    place_id: str = ""
    """The id that it has been admitted to; empty: it has not."""
    why: str = ""
    """Why it is not admitted; empty: that is not known yet."""
    is_missed: bool = False
    """Whether a process that sees the place has not found the mark: another mark is needed."""

    @property
    def is_admitted(self) -> bool:
        """Whether it sees the place."""
        return bool(self.place_id)

    @property
    def is_pending(self) -> bool:
        """Whether its mark is to be looked for."""
        return bool(self.mark) and not (self.place_id or self.why)
