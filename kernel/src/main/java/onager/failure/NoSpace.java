package onager.failure;

import java.util.regex.Pattern;

/** No space is left in the exchange directory, or where a dataset is staged. Retries are not counted, since space may become free. */
@SuppressWarnings("serial")
public final class NoSpace extends ExchangeFailure {
    private static final String OF_HDFS = "QuotaExceededException";
    private static final Pattern FULL = Pattern.compile("No space left on device|Disk quota exceeded|" + OF_HDFS);

    public NoSpace(String message, Throwable cause) {
        super(message, cause);
    }

    /** Whether *e* says that a disk or a quota is full, in the words of the system or of HDFS; paths may have such words, too. */
    public static boolean is(Throwable e) {
        for (Throwable at = e; at != null; at = at.getCause()) {
            if (at.getMessage() != null && FULL.matcher(at.getMessage()).find() || at.getClass().getSimpleName().endsWith(OF_HDFS)) {
                return true;
            }
        }
        return false;
    }
}
