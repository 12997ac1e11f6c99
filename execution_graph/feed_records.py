"""Feeds: where the partitions of a growing stage come from, if planning does not know them all.

A growing stage has a *feed*, a stage of its own whose tasks find partitions: files of a directory that is still being
listed, pages of a source. Each of these tasks goes on where the one before it stopped, and gives a *portion*. So the
feed has one task at a time, and portion n is the output of its n-th task: an attempt that dies leaves nothing behind,
and the next one finds the same again.

The stages that read a growing stage wait until it is successful, and then know the number of its tasks, like any other.
"""

from msgspec.structs import replace

from onager.execution_graph.record import Record


class Portion(Record, frozen=True, kw_only=True):
    """Partitions that were found together."""

    digest: str
    """What they read, and where the feed goes on after them, by content."""
    partitions: int
    """0 or more."""


class Feed(Record, frozen=True, kw_only=True):
    """What a growing stage has been given."""

    stage_id: int
    """The stage that finds its partitions."""
    portions: tuple[Portion, ...]
    """In order: the stage's partitions are theirs, one portion after the other."""
    planned: int
    """How many of them, the first ones, planning had found."""
    has_ended: bool = False
    """Whether these are all."""

    @property
    def partitions(self) -> int:
        """Return how many partitions there are so far."""
        return sum(portion.partitions for portion in self.portions)

    def grown(self, portion: Portion, *, has_ended: bool) -> "Feed":
        """Return the feed after *portion* was found, which is the last one if it *has_ended*."""
        return replace(self, portions=(*self.portions, portion), has_ended=has_ended)

    def portion_of(self, partition: int) -> tuple[int, Portion]:
        """Return the portion that *partition* belongs to, and its first partition."""
        first = 0
        for portion in self.portions:
            if partition < first + portion.partitions:
                return first, portion
            first += portion.partitions
        raise IndexError(partition)
