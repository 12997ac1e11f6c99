"""Counts wrong logins, so that tokens cannot be guessed there."""

import ipaddress
import math
from collections import OrderedDict, deque
from typing import Final

from onager.access_errors import LoginsLimitedError
from onager.clock import Clock

WINDOW_S: Final = 60.0
MAX_OF_PEER: Final = 10
"""Wrong logins from one address within `WINDOW_S`; of IPv6, from one network of 64 bits."""
MAX_FAILURES: Final = 200
"""Wrong logins from all together."""
_PEERS: Final = 4_096


class LoginAttempts:
    """The wrong logins of the last while, by address; what is remembered of them has a limit."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._of_peer: OrderedDict[str, deque[float]] = OrderedDict()
        self._all: deque[float] = deque(maxlen=MAX_FAILURES)

    def check(self, peer: str) -> None:
        """Raise `LoginsLimitedError` if *peer*, or all together, have failed too often to try again now."""
        now_s = self._clock.monotonic_s()
        of_peer = self._of_peer.get(_network(peer), deque[float]())
        for failures, most in ((of_peer, MAX_OF_PEER), (self._all, MAX_FAILURES)):
            while failures and failures[0] <= now_s - WINDOW_S:
                failures.popleft()
            if len(failures) >= most:
                raise LoginsLimitedError(math.ceil(failures[0] + WINDOW_S - now_s))

    def failed(self, peer: str) -> None:
        """Count a wrong login."""
        now_s = self._clock.monotonic_s()
        network = _network(peer)
        self._of_peer.setdefault(network, deque(maxlen=MAX_OF_PEER)).append(now_s)
        self._of_peer.move_to_end(network)
        if len(self._of_peer) > _PEERS:
            self._of_peer.popitem(last=False)
        self._all.append(now_s)


def _network(peer: str) -> str:
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return peer
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else peer  # noqa: PLR2004
