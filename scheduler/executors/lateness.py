"""How late this process was lately: calls that it was too late to read prove nobody's silence."""

from collections import deque
from typing import Final

_REMEMBERED: Final = 1_024


class Lateness:
    """The delays of a loop that should look every *interval_s*."""

    def __init__(self, interval_s: float, began_s: float) -> None:
        self._interval_s = interval_s
        self._looked_s = began_s
        self._delays: deque[tuple[float, float]] = deque(maxlen=_REMEMBERED)
        """When the loop came late, and by how many seconds."""

    def note(self, now_s: float) -> None:
        """Note that the loop looks."""
        late_s = self._late_s(now_s)
        if late_s > 0:
            self._delays.append((now_s, late_s))
        self._looked_s = now_s

    def since(self, begin_s: float, now_s: float) -> float:
        """Return for how much of the time since *begin_s* the loop was late; less than two intervals are not."""
        total_s = min(self._late_s(now_s), max(0.0, now_s - begin_s))
        for ended_s, late_s in reversed(self._delays):
            if ended_s <= begin_s:
                break
            total_s += min(late_s, ended_s - begin_s)
        return total_s

    def _late_s(self, now_s: float) -> float:
        late_s = now_s - self._looked_s - self._interval_s
        return late_s if late_s >= self._interval_s else 0.0
