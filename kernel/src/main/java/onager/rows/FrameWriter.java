package onager.rows;

import java.io.IOException;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/**
 * Collects one task's rows into frames by bucket, and passes these to a sink. Memory stays within a limit plus one row: when all buffers
 * together reach the limit, the largest becomes a frame.
 */
public final class FrameWriter {
    private final ExchangeSink sink;
    private final long memory;
    private final FrameBuilder[] builders;
    private final long[] rowsOf;
    private final boolean[] unwanted;
    private int wanted;
    private long held = 0;
    private long rows = 0;
    private long bytes = 0;

    public FrameWriter(ExchangeSink sink, int buckets, int frameBytes, long memory) {
        this.sink = sink;
        this.memory = memory;
        this.builders = new FrameBuilder[buckets];
        this.rowsOf = new long[buckets];
        this.unwanted = new boolean[buckets];
        this.wanted = buckets;
        for (int i = 0; i < buckets; i++) {
            builders[i] = new FrameBuilder(frameBytes);
        }
    }

    /** Return the number of rows added so far. */
    public long rows() {
        return rows;
    }

    /** Return the uncompressed size of the frames passed so far: about what their rows take in memory. */
    public long bytes() {
        return bytes;
    }

    /** Whether anybody may still read one of the buckets. */
    public boolean isWanted() {
        return wanted > 0;
    }

    public void add(int bucket, UnsafeRow row) throws IOException, InterruptedException {
        if (unwanted[bucket]) {
            return;
        }
        FrameBuilder b = builders[bucket];
        int size = row.getSizeInBytes();
        if (b.isFullFor(size)) {
            flush(bucket);
            if (unwanted[bucket]) {
                return;
            }
        }
        held += b.add(row, size);
        rowsOf[bucket]++;
        rows++;
        while (held > memory) {
            flush(largest());
        }
    }

    private int largest() {
        int found = 0;
        for (int i = 1; i < builders.length; i++) {
            if (builders[i].held() > builders[found].held()) {
                found = i;
            }
        }
        return found;
    }

    /** Pass a bucket's rows to the sink; if memory is short, release the buffer, too. */
    private void flush(int bucket) throws IOException, InterruptedException {
        FrameBuilder b = builders[bucket];
        if (b.rows() > 0) {
            Frame frame = b.frame();
            bytes += frame.size();
            if (!sink.put(bucket, frame)) {
                unwanted[bucket] = true;
                wanted--;
            }
        }
        held -= b.held();
        b.reset(held > memory / 2 || unwanted[bucket]);
        held += b.held();
    }

    /** Flush all buffers, and tell the sink that the rows are complete. */
    public void finish() throws IOException, InterruptedException {
        for (int i = 0; i < builders.length; i++) {
            if (!unwanted[i]) {
                flush(i);
            }
        }
        sink.finish(rowsOf);
    }
}
