package onager.kernel;

/** No space is left in the exchange directory, or where a dataset is staged: no try can mend that, and space may come. */
public final class NoSpace extends ExchangeFailure {
    NoSpace(String message, Throwable cause) {
        super(message, cause);
    }

    /** Whether *e* says that a disk or a quota is full. */
    static boolean is(Throwable e) {
        for (Throwable at = e; at != null; at = at.getCause()) {
            String low = at.getMessage() == null ? "" : at.getMessage().toLowerCase();
            if (low.indexOf("no space left") >= 0 || low.indexOf("quota") >= 0) {
                return true;
            }
        }
        return false;
    }
}
