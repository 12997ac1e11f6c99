"""The order in which schedulers take up work that any of them may do.

Work on a job needs no owner, and is safe even if all schedulers do it at once. But that is wasteful: all but one lose
the race. So each thing has a first scheduler, and the others give it a moment. When the moment is over and the thing is
still to be done, the next scheduler does it, without waiting to learn whether the first is dead.
"""

from onager.scheduler.cluster.live_schedulers import LiveSchedulers
from onager.scheduler.policy import rendezvous


class Precedence:
    """The place of this scheduler among the live ones."""

    def __init__(self, schedulers: LiveSchedulers) -> None:
        self._schedulers = schedulers

    @property
    def is_alone(self) -> bool:
        """Return whether there is no other scheduler."""
        return not self._schedulers.live - {self._schedulers.id}

    def place(self, key: str) -> int:
        """Return how many schedulers come before this one for *key*; 0 for the first."""
        live = self._schedulers.live
        if self._schedulers.id not in live:
            return len(live)  # it is leaving
        return rendezvous.rank(key, self._schedulers.id, live)

    def has_come(self, key: str, waited: float, moment: float) -> bool:
        """Return whether it is this scheduler's turn, *waited* after it saw that there is something to do.

        Each place adds one *moment* of waiting; both are in the same unit.
        """
        return waited >= moment * self.place(key)
