package onager.stream;

import com.fasterxml.jackson.databind.JsonNode;

/** How much streams may hold, and how long anybody waits. */
final class StreamLimits {
    private static final long MIB = 1L << 20;

    /** Of rows in a frame, before it is packed. */
    final int frameBytes;
    /** Of packed frames in memory: of a channel, one frame at least, and of all channels of the executor. */
    final long channelBytes;
    final long memoryBytes;
    /** Of packed frames that a reader has before it is asked for them. */
    final long prefetchBytes;
    /** Of packed frames of all that stages are read whole for while they are bound; who needs more has to read files. */
    final long heldBytes;
    /** How long after its start a writer waits for readers that have not come, and for one that came since it last asked. */
    final long patienceNs;
    final long readerPatienceNs;
    /** How long a reader tries to reach a producer's executor, and waits there for a task that has not begun. */
    final long connectNs;
    final long absentNs;
    final int pollMs;

    /** *spec*: a JSON object; what it does not name has its default. */
    StreamLimits(JsonNode spec) {
        long heap = Runtime.getRuntime().maxMemory();
        frameBytes = (int) of(spec, "frame_bytes", 256L << 10);
        channelBytes = of(spec, "channel_bytes", 2L * MIB);
        memoryBytes = of(spec, "memory_bytes", Math.max(16L * MIB, Math.min(heap / 16L, 256L * MIB)));
        prefetchBytes = of(spec, "prefetch_bytes", 4L * MIB);
        heldBytes = of(spec, "held_bytes", heap / 4L);
        patienceNs = 1_000_000L * of(spec, "patience_ms", 200L);
        readerPatienceNs = 1_000_000L * of(spec, "reader_patience_ms", 2000L);
        connectNs = 1_000_000L * of(spec, "connect_ms", 5000L);
        absentNs = 1_000_000L * of(spec, "absent_ms", 60_000L);
        pollMs = (int) of(spec, "poll_ms", 10_000L);
    }

    private static long of(JsonNode spec, String name, long otherwise) {
        return spec.has(name) ? spec.get(name).asLong() : otherwise;
    }
}
