"""What a program caches, in the session in which a job is planned."""

from pyspark.sql import SparkSession

from onager.executor.spark.jvm import JavaObject, Jvm, jvm_session, to_list


class JavaCaches:
    """See Java's `Caches`. Frames are datasets of the session, and each has an id."""

    def __init__(self, session: SparkSession) -> None:
        """Make it in *session*, which is nobody else's."""
        jvm = Jvm.of(session)
        self._java = jvm.java_class("onager.spark43.Caches")(jvm_session(session))
        self._connect = jvm.java_class("onager.spark43.ConnectSession")

    def add(self, cache_id: str, frame: JavaObject, level: bytes, table: str) -> bool:
        """Add *frame*, unless it is cached; return whether it was added. *level*: an encoded StorageLevel."""
        return bool(self._java.add(cache_id, frame, self._connect.level(level), table or None))

    def of(self, frame: JavaObject, *, cascades: bool) -> list[str]:
        """Return what caches *frame*; if it *cascades*, also what caches something that is made of it."""
        return [str(each) for each in to_list(self._java.of(frame, cascades))]

    def read_by(self, query: JavaObject) -> list[str]:
        """Return what *query* reads, directly or through others, in the order in which it was added."""
        return [str(each) for each in to_list(self._java.readBy(query))]

    def frame(self, cache_id: str) -> JavaObject:
        """Return the frame that was added as *cache_id*."""
        return self._java.frame(cache_id)

    def cache(self, cache_id: str) -> JavaObject:
        """Have Spark read it as cached, planned under what are now the session's settings; return its physical plan."""
        return self._java.cache(cache_id)

    def release(self) -> None:
        """Have Spark read nothing as cached any more."""
        self._java.release()
