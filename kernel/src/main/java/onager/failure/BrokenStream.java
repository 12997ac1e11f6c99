package onager.failure;

import java.io.IOException;

/** What a task meets when another one has failed: a consequence, and never the reason why a run failed. */
@SuppressWarnings("serial")
public final class BrokenStream extends IOException {
    public BrokenStream(String message, Throwable cause) {
        super(message, cause);
    }
}
