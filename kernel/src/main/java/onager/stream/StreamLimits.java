package onager.stream;

import com.fasterxml.jackson.databind.JsonNode;

/** The limits of streams: memory, and how long readers and writers wait. */
final class StreamLimits {
    private static final long MIB = 1L << 20;

    /** The size of a frame's rows, before it is packed. */
    final int frameBytes;
    /** The size of packed frames in memory: for a channel (but at least one frame), and for all channels of the executor. */
    final long channelBytes;
    final long memoryBytes;
    /** The size of packed frames that a reader fetches in advance. */
    final long prefetchBytes;
    /** The size of packed frames of all streams that are read as a whole while stages are bound; larger ones must be read from files. */
    final long heldBytes;
    /** How long a writer waits for a reader: for the first request since its start, and for the next one since the last. */
    final long patienceNs;
    final long readerPatienceNs;
    /** How long a reader tries to reach a producer's executor, and waits for a task there that has not started. */
    final long connectNs;
    final long absentNs;
    final int pollMs;

    /** *spec*: a JSON object; missing fields have defaults. */
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
