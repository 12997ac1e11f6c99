"""What executors did, counted by time: for jobs with more attempts than a picture can show one by one."""

from collections import Counter, defaultdict
from collections.abc import Iterable

from onager.execution_graph.intervals import Attempt
from onager.scheduler.api.timeline.model import Bucket


class _Lane:
    """What is known of an executor, by the number of a bucket."""

    def __init__(self) -> None:
        self.partial_ms: defaultdict[int, int] = defaultdict(int)
        """What attempts that began or ended within a bucket had of it."""
        self.steps: defaultdict[int, int] = defaultdict(int)
        """By how many the number of attempts that have the whole bucket differs from that of the bucket before."""
        self.ended: defaultdict[int, Counter[str]] = defaultdict(Counter)


class Buckets:
    """Counts of one length, to which attempts are added as they end."""

    def __init__(self, start_ms: int, length_ms: int, lanes: int) -> None:
        self.length_ms = length_ms
        self.added = 0
        """How many attempts have been added."""
        self._start_ms = start_ms
        self._lanes = [_Lane() for _ in range(lanes)]

    @property
    def lanes(self) -> int:
        """Return for how many executors there is room; those beyond are counted with the last one."""
        return len(self._lanes)

    def add(self, spans: Iterable[Attempt], now_ms: int) -> None:
        """Add *spans*. Attempts that go on count up to *now_ms*."""
        length_ms, last_lane = self.length_ms, len(self._lanes) - 1
        for span in spans:
            lane = self._lanes[min(span.lane, last_lane)]
            from_ms = max(0, span.from_ms - self._start_ms)
            to_ms = max(from_ms, (now_ms if span.to_ms is None else span.to_ms) - self._start_ms)
            first, last = from_ms // length_ms, to_ms // length_ms
            if first == last:
                lane.partial_ms[first] += to_ms - from_ms
            else:
                lane.partial_ms[first] += (first + 1) * length_ms - from_ms
                lane.partial_ms[last] += to_ms - last * length_ms
                lane.steps[first + 1] += 1
                lane.steps[last] -= 1
            if span.to_ms is not None:
                lane.ended[last][span.outcome.value] += 1
            self.added += 1

    def buckets(self, running: Iterable[Attempt], now_ms: int) -> list[Bucket]:
        """Return the buckets in which anything was done, also by those *running* at *now_ms*."""
        beside = Buckets(self._start_ms, self.length_ms, len(self._lanes))
        beside.add(running, now_ms)
        count = (now_ms - self._start_ms) // self.length_ms + 1
        found = []
        for number, (lane, other) in enumerate(zip(self._lanes, beside._lanes, strict=True)):
            whole = 0
            for i in range(count):
                whole += lane.steps.get(i, 0) + other.steps.get(i, 0)
                busy_ms = lane.partial_ms.get(i, 0) + other.partial_ms.get(i, 0)
                ended = lane.ended.get(i) or Counter()
                if whole or busy_ms or ended:
                    busy = round(whole + busy_ms / self.length_ms, 2)
                    from_ms = self._start_ms + i * self.length_ms
                    found.append(Bucket(lane=number, from_ms=from_ms, running=busy, **ended))
        return found
