package onager.failure;

/** The query asks for something that no executor does for it; the text says what, and what to do instead. */
@SuppressWarnings("serial")
public final class RefusedException extends IllegalArgumentException {
    public RefusedException(String message) {
        super(message);
    }
}
