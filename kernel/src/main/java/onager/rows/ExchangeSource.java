package onager.rows;

import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;

/**
 * The frames that one task reads of one input. One thread uses it. Nothing is asked of producers before the first `next`:
 * an operator may never read, and then nothing is waited for or held.
 */
public interface ExchangeSource {
    /**
     * Return the next frame, waiting for it, or null at the end of the stream.
     *
     * <p>A frame stays as it is until this was called twice more. The end is given only where every producer said that it
     * is one; a producer that failed, or fell silent, is an exception.
     */
    Frame next() throws IOException, InterruptedException;

    /** Read no more, and let producers know. Harmless to repeat; never throws. */
    void close();

    /** Return the next frame of *source* for a task, whose exceptions are those that Spark expects. */
    static Frame next(ExchangeSource source, TaskContext context) {
        context.killTaskIfInterrupted();
        try {
            return source.next();
        } catch (InterruptedException e) {
            context.killTaskIfInterrupted();
            throw new TaskKilledException("interrupted");
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
