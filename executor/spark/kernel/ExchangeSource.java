package onager.kernel;

import java.io.IOException;

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
}
