"""Who changed what, a line for each act."""

from dataclasses import asdict

import onager
from onager.cli.admin import when
from onager.cli.moments import moment_ms
from onager.cli.output import print_json, print_table


def audit(scheduler: str, since: str, action: str, target: str, by: str, output: str) -> None:
    """Print the acts of the last while, oldest first."""
    since_ms = moment_ms("--since", since)
    with onager.connect(scheduler) as client:
        found = list(client.audit(since_ms=since_ms, action=action, target=target, principal=by))
    if output == "json":
        print_json([asdict(entry) for entry in found])
        return
    print_table(
        ("WHEN", "BY", "FROM", "SCHEDULER", "ACTION", "TARGET", "DETAIL", "OUTCOME"),
        [
            (when(e.at_ms), e.principal, e.address, e.scheduler_id, e.action, e.target, e.detail, e.outcome)
            for e in found
        ],
    )
