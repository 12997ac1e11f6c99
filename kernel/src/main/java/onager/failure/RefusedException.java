package onager.failure;

/** The query asks for something that executors do not support; the message says what, and what to do instead. */
@SuppressWarnings("serial")
public final class RefusedException extends IllegalArgumentException {
    public RefusedException(String message) {
        super(message);
    }
}
