package onager.rows;

import java.io.IOException;

/** Where one execution of a task puts its frames. One thread uses it; it ends with `finish` or `abort`, once. */
public interface ExchangeSink {
    /**
     * Hand over a frame of *bucket*, waiting as long as there is no room for it.
     *
     * <p>The frame's bytes are the sink's during the call alone. False says that nobody will read this bucket any more: the
     * frame was dropped, and no other of the bucket need be given.
     */
    boolean put(int bucket, Frame frame) throws IOException, InterruptedException;

    /** All is given, *rows* of them by bucket (of those that are wanted): only now can a reader come to an end. */
    void finish(long[] rows) throws IOException;

    /** What was given is not all, since the task failed: readers must not take it for the whole. Never throws. */
    void abort(Throwable why);

    /** Bytes stored or sent so far. */
    long bytes();
}
