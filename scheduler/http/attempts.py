"""Counts wrong logins, so that tokens cannot be guessed there."""

import ipaddress
import math
from collections import OrderedDict, deque
from typing import Final

from onager.access_errors import LoginsLimitedError
from onager.clock import Clock

WINDOW_S: Final = 60.0
MAX_OF_ADDRESS: Final = 10
"""Wrong logins from one address within `WINDOW_S`; of IPv6, from one network of 64 bits."""
MAX_FAILURES: Final = 200
"""Wrong logins from all together."""
_MAX_ADDRESSES: Final = 4_096


class LoginAttempts:
    """The wrong logins of the last while, by address; what is remembered of them has a limit."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._of_address: OrderedDict[str, deque[float]] = OrderedDict()
        self._all: deque[float] = deque(maxlen=MAX_FAILURES)

    def check(self, address: str) -> None:
        """Raise `LoginsLimitedError` if *address*, or all together, have failed too often to try again now."""
        now_s = self._clock.monotonic_s()
        of_address = self._of_address.get(_network(address), deque[float]())
        for failures, most in ((of_address, MAX_OF_ADDRESS), (self._all, MAX_FAILURES)):
            while failures and failures[0] <= now_s - WINDOW_S:
                failures.popleft()
            if len(failures) >= most:
                raise LoginsLimitedError(math.ceil(failures[0] + WINDOW_S - now_s))

    def failed(self, address: str) -> None:
        """Count a wrong login."""
        now_s = self._clock.monotonic_s()
        network = _network(address)
        self._of_address.setdefault(network, deque(maxlen=MAX_OF_ADDRESS)).append(now_s)
        self._of_address.move_to_end(network)
        if len(self._of_address) > _MAX_ADDRESSES:
            self._of_address.popitem(last=False)
        self._all.append(now_s)


def _network(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False)) if parsed.version == 6 else address  # noqa: PLR2004
