package onager.failure;

import java.io.IOException;
import java.nio.file.AccessDeniedException;
import java.util.regex.Pattern;

/** The exchange directory is unusable; the message names it and says what to do. */
@SuppressWarnings("serial")
public class ExchangeFailure extends IOException {
    /** What the system says after a path, or in brackets, or alone. */
    private static final Pattern FORBIDDEN = Pattern.compile("(^|: |\\()(Read-only file system|Permission denied)\\)?$");
    private static final String OF_HDFS = "AccessControlException";

    public ExchangeFailure(String message, Throwable cause) {
        super(message, cause);
    }

    /** Return the failure for a write below the directory *root*, with a message for operators. */
    public static ExchangeFailure ofWrite(String root, IOException e) {
        String why = Failures.text(e);
        if (NoSpace.is(e)) {
            return new NoSpace("exchange directory " + root + " is full: free space there or give another --exchange-dir (" + why + ")", e);
        }
        String advice = isForbidden(e) ? "cannot be written: check its permissions and whether it is mounted read-only" : "could not be written";
        return new ExchangeFailure("exchange directory " + root + " " + advice + " (" + why + ")", e);
    }

    /** Whether *e* says that this user may not write, or nobody, in the words of the system or of HDFS; paths may have such words, too. */
    private static boolean isForbidden(Throwable e) {
        return Failures.chain(e).stream().anyMatch(at -> at instanceof AccessDeniedException || at.getClass().getSimpleName().equals(OF_HDFS)
                || at.getMessage() != null && FORBIDDEN.matcher(at.getMessage()).find());
    }

    public static ExchangeFailure ofMissing(String root, Throwable cause) {
        return new ExchangeFailure("exchange directory " + root + " is not there (or not a directory): mount the volume there "
                + "that all schedulers and executors share", cause);
    }
}
