package onager.failure;

import java.io.IOException;

/** A stream broke because another task failed: a consequence, never the cause of a run's failure. */
@SuppressWarnings("serial")
public final class BrokenStream extends IOException {
    public BrokenStream(String message, Throwable cause) {
        super(message, cause);
    }
}
