"""Who changed what, a line for each act."""

import re
import time
from dataclasses import asdict
from typing import Final

import onager
from onager.cli.admin import when
from onager.cli.exits import ExitCode, fail
from onager.cli.output import print_json, print_table

LENGTH: Final = re.compile(r"([0-9]{1,9})([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}


def audit(scheduler: str, since: str, action: str, target: str, by: str, output: str) -> None:
    """Print the acts of the last while, oldest first."""
    now_ms = time.time_ns() // 1_000_000
    since_ms = max(0, now_ms - 1000 * seconds("--since", since))
    with onager.connect(scheduler) as client:
        found = list(client.audit(since_ms=since_ms, action=action, target=target, principal=by))
    if output == "json":
        print_json([asdict(entry) for entry in found])
        return
    print_table(
        ("WHEN", "BY", "FROM", "SCHEDULER", "ACTION", "TARGET", "DETAIL", "OUTCOME"),
        [(when(e.at_ms), e.principal, e.peer, e.scheduler_id, e.action, e.target, e.detail, e.outcome) for e in found],
    )


def seconds(name: str, text: str) -> int:
    """Return the length of ``30s``, ``10m``, ``1h`` or ``7d``; otherwise end the process with a message."""
    found = LENGTH.fullmatch(text)
    if found is None:
        fail(f"{name} {text!r}: expected a length of time, such as 30m, 1h or 7d", ExitCode.USAGE)
    return int(found[1]) * _SECONDS[found[2]]
