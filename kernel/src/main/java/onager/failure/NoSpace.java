package onager.failure;

/** No space is left in the exchange directory, or where a dataset is staged. Retries are not counted, since space may become free. */
@SuppressWarnings("serial")
public final class NoSpace extends ExchangeFailure {
    public NoSpace(String message, Throwable cause) {
        super(message, cause);
    }

    /** Whether *e* says that a disk or a quota is full. */
    public static boolean is(Throwable e) {
        for (Throwable at = e; at != null; at = at.getCause()) {
            String low = at.getMessage() == null ? "" : at.getMessage().toLowerCase();
            if (low.contains("no space left") || low.contains("quota")) {
                return true;
            }
        }
        return false;
    }
}
