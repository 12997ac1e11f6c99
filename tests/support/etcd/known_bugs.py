"""Bugs of etcd that a test of faults may meet, by version: a test that could says so, and does not pass quietly.

Source: CHANGELOG-3.4.md, CHANGELOG-3.5.md and CHANGELOG-3.6.md of etcd-io/etcd.
"""

from dataclasses import dataclass
from typing import Final

from tests.support.etcd.programs import Version, etcd_version, shown


@dataclass(frozen=True)
class KnownBug:
    number: int
    what: str
    since: Version
    fixed: tuple[Version, ...]
    """The first release of each minor version that has it no more."""

    def affects(self, version: Version) -> bool:
        if version < self.since:
            return False
        fixes = [fix for fix in self.fixed if fix[:2] == version[:2]]
        return version < fixes[0] if fixes else version < max(self.fixed)

    def __str__(self) -> str:
        fixed = ", ".join(map(shown, self.fixed))
        return f"etcd#{self.number}: {self.what} (fixed in {fixed})"


STALE_READS: Final = KnownBug(
    20418,
    "a member may answer reads from the past after a process was paused",
    (3, 4, 20),
    ((3, 4, 42), (3, 5, 28), (3, 6, 9)),
)
LOST_WRITES: Final = KnownBug(
    14370, "a single member may lose an acknowledged write when it is killed", (3, 4, 0), ((3, 4, 21), (3, 5, 5))
)
KNOWN_BUGS: Final = (STALE_READS, LOST_WRITES)


def about(*bugs: KnownBug) -> str:
    """Return which server was tested, and which of *bugs* it has: for what a test tells, or says when it fails."""
    version = etcd_version()
    has = [str(bug) for bug in bugs if bug.affects(version)]
    return f"etcd {shown(version)}" + (f", which has {'; '.join(has)}" if has else "")
