"""Leaves of plans: scans and rows are written as descriptions, from which tasks make them again."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onager.executor.spark.jvm import JavaObject, Jvm


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A scan of files, as planned."""

    input_bytes: int
    files: int
    partitions: int
    file_format: str
    root: str


class LeafTools:
    """Writes descriptions of plan leaves to files, and rebuilds leaves from them."""

    def __init__(self, jvm: Jvm) -> None:
        self._leaves = jvm.java_class("onager.plan.Leaves")
        self._feeds = jvm.java_class("onager.plan.Feeds")
        self._sources = jvm.java_class("onager.plan.PartitionsScanExec")
        self._paged = jvm.java_class("onager.plan.PagedSources")

    def describe_files(self, scan: JavaObject, target: Path) -> FileFacts:
        """Describe a scan of files in the file *target*."""
        return _file_facts(self._leaves.describeFiles(scan, str(target)))

    def describe_growing(self, scan: JavaObject, target: Path, source: Path, portion: Path) -> FileFacts | None:
        """Describe a scan of files of which some are known, its feed, and these files; None if all are to be listed.

        Each goes to the file that is given for it.
        """
        facts = self._feeds.describe(scan, str(target), str(source), str(portion))
        return None if facts is None else _file_facts(facts)

    def feed_roots(self, source: bytes) -> list[str]:
        """Return the directories that the feed of *source* lists."""
        return str(self._feeds.roots(source)).splitlines()

    def next_portion(self, session: JavaObject, source: bytes, before: bytes, target: Path) -> tuple[int, int, bool]:
        """Find what comes after the portion *before*; return how many tasks read it, how many files, and the end.

        The portion goes to the file *target*.
        """
        tasks, files, ended = str(self._feeds.next(session, source, before, str(target))).split("\t")
        return int(tasks), int(files), ended == "1"

    def describe_source(self, scan: JavaObject, target: Path) -> tuple[int, int, str] | None:
        """Describe a scan of a data source; return bytes, partitions and name, or None if it waits for a subquery."""
        return _source_facts(self._sources.describe(scan, str(target)))

    def describe_growing_source(
        self, scan: JavaObject, target: Path, source: Path, portion: Path
    ) -> tuple[int, int, str] | None:
        """Describe a scan of a data source of which the first partitions are known, its feed, and these partitions.

        Return bytes, the number of these, and the name; None if they are all. Each goes to the file that is given.
        """
        return _source_facts(self._paged.describe(scan, str(target), str(source), str(portion)))

    def describe_rows(
        self, leaf: JavaObject, session: JavaObject, limit_bytes: int, target: Path
    ) -> tuple[int, int] | None:
        """Describe the rows of *leaf*; return bytes and partitions, or None if they exceed *limit_bytes*."""
        facts = self._leaves.describeRows(leaf, session, limit_bytes, str(target))
        return None if facts is None else _two(facts)

    def describe_other(self, leaf: JavaObject, target: Path) -> tuple[int, int]:
        """Describe a range, one row, or nothing; return bytes and partitions."""
        return _two(self._leaves.describeOther(leaf, str(target)))

    def rebuild(self, session: JavaObject, description: bytes) -> JavaObject:
        """Return the leaf that *description* describes, for plans that run in *session*."""
        return self._leaves.rebuild(description, session)

    def roots(self, leaf: JavaObject) -> list[str]:
        """Return where the files lie that *leaf* reads, as URIs."""
        return str(self._leaves.roots(leaf)).splitlines()

    def rebuild_growing(self, session: JavaObject, description: bytes, portion: bytes, first: int) -> JavaObject:
        """Return the leaf that *description* describes, over *portion*, whose first partition is *first*."""
        return self._feeds.rebuild(description, portion, first, session)


class PagedSources:
    """The Python data sources of a query, which give the first partitions only while it is planned to be cut."""

    def __init__(self, jvm: Jvm, analyzed: JavaObject) -> None:
        """Begin with those in the analyzed query."""
        self._java = jvm.java_class("onager.plan.PagedSources").of(analyzed)

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return self._java is not None

    def end(self) -> None:
        """Let them give all of their partitions when they are planned from now on."""
        if self._java is not None:
            self._java.restore()
            self._java = None


def read_growing(jvm: Jvm, session: JavaObject, from_files: int) -> None:
    """Let reads in *session* be growing ones where a directory has at least *from_files* files."""
    jvm.java_class("onager.plan.GrowingReads").enable(session, from_files)


def _file_facts(facts: JavaObject) -> FileFacts:
    size, files, partitions, file_format, root = str(facts).split("\t")
    return FileFacts(int(size), int(files), int(partitions), file_format, root)


def _source_facts(facts: JavaObject | None) -> tuple[int, int, str] | None:
    if facts is None:
        return None
    size, partitions, name = str(facts).split("\t")
    return int(size), int(partitions), name


def _two(facts: Any) -> tuple[int, int]:
    size, partitions = str(facts).split("\t")
    return int(size), int(partitions)
