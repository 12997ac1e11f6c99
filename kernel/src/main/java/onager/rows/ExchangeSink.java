package onager.rows;

import java.io.IOException;

/** Takes the frames of one execution of a task, on one thread; it ends with a single `finish` or `abort`. */
public interface ExchangeSink {
    /**
     * Put a frame of *bucket*, and wait while there is no room for it.
     *
     * <p>The sink uses the frame's bytes only during the call. Returns false if nobody will read this bucket any more: the frame was
     * dropped, and no further frames of the bucket are needed.
     */
    boolean put(int bucket, Frame frame) throws IOException, InterruptedException;

    /** The output is complete, with *rows* rows by bucket (of wanted buckets); only now do readers see the end. */
    void finish(long[] rows) throws IOException;

    /** The task failed and its output is incomplete; readers must not see an end. Never throws. */
    void abort(Throwable why);

    /** Return the bytes stored or sent so far. */
    long bytes();

    /** Return the bytes stored so far by bucket; null if nobody asks for them. */
    long[] bytesOfBuckets();
}
