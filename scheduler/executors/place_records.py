"""What the store has of shared directories, and of what an executor sees of them."""

from typing import Final

from pydantic import BaseModel, ConfigDict

from onager.scheduler.records import Record

REFUSED_FOR_GOOD_MS: Final = 10_000
"""A refusal that is younger may be a disk that fails for a moment: reading errors are retried for about that long."""
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
    refused_ms: int = 0
    """When it was first refused since it was last admitted; 0: it was not. Earlier schedulers drop the field."""

    @property
    def is_admitted(self) -> bool:
        """Whether it sees the place."""
        return bool(self.place_id)

    @property
    def is_pending(self) -> bool:
        """Whether its mark is to be looked for."""
        return bool(self.mark) and not (self.place_id or self.why)

    def is_refused_for_good(self, now_ms: int) -> bool:
        """Whether it does not see the place, for longer than a disk may fail for a moment."""
        return bool(self.why) and now_ms - self.refused_ms >= REFUSED_FOR_GOOD_MS

    def after(self, before: "PlaceClaim | None", now_ms: int) -> "PlaceClaim":
        """Return the claim with the time of its refusal, which may have begun with the claim *before*."""
        if self.is_admitted:
            return self
        since_ms = 0 if before is None or before.is_admitted else before.refused_ms
        return self.model_copy(update={"refused_ms": since_ms or (now_ms if self.why else 0)})
