package onager.rows;

import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;

/**
 * The frames of one input that one task reads, on one thread. Producers are not asked before the first `next`: an operator may never
 * read, and then nothing is waited for or held in memory.
 */
public interface ExchangeSource {
    /**
     * Wait for the next frame and return it, or null at the end.
     *
     * <p>A frame stays valid until the second next call. The end is returned only after every producer has reported its own; a producer
     * that failed, or that no longer answers, causes an exception.
     */
    Frame next() throws IOException, InterruptedException;

    /** Stop reading, and tell the producers. Idempotent; never throws. */
    void close();

    /** Return the next frame of *source* for a task (null: for none), with exceptions that Spark expects. */
    static Frame next(ExchangeSource source, TaskContext context) {
        if (context != null) {
            context.killTaskIfInterrupted();
        }
        try {
            return source.next();
        } catch (InterruptedException e) {
            if (context != null) {
                context.killTaskIfInterrupted();
            }
            throw new TaskKilledException("interrupted");
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
