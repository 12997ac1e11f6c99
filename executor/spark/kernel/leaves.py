"""Leaves of plans: scans and rows are written as descriptions, from which tasks make them again."""

from pathlib import Path

from onager.executor.spark.jvm import JavaObject, Jvm


class LeafTools:
    """Rebuilds leaves from their descriptions, and finds more of those that grow."""

    def __init__(self, jvm: Jvm) -> None:
        self._leaves = jvm.java_class("onager.plan.Leaves")
        self._feeds = jvm.java_class("onager.plan.Feeds")

    def feed_roots(self, source: bytes) -> list[str]:
        """Return the directories that the feed of *source* lists."""
        return str(self._feeds.roots(source)).splitlines()

    def next_portion(self, session: JavaObject, source: bytes, before: bytes, target: Path) -> tuple[int, int, bool]:
        """Find what comes after the portion *before*; return how many tasks read it, how many files, and the end.

        The portion goes to the file *target*.
        """
        tasks, files, ended = str(self._feeds.next(session, source, before, str(target))).split("\t")
        return int(tasks), int(files), ended == "1"

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
