package onager.kernel;

/** The query asks for something that it does not get here, and would not elsewhere; the text says what, and what to do instead. */
public final class RefusedException extends IllegalArgumentException {
    public RefusedException(String message) {
        super(message);
    }
}
