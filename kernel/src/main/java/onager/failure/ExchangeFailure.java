package onager.failure;

import java.io.IOException;
import java.nio.file.AccessDeniedException;

/** The exchange directory is unusable; the message names it and says what to do. */
@SuppressWarnings("serial")
public class ExchangeFailure extends IOException {
    public ExchangeFailure(String message, Throwable cause) {
        super(message, cause);
    }

    /** Return the failure for a write below the directory *root*, with a message for operators. */
    public static ExchangeFailure ofWrite(String root, IOException e) {
        String why = Failures.text(e);
        String low = why.toLowerCase();
        if (NoSpace.is(e)) {
            return new NoSpace("exchange directory " + root + " is full: free space there or give another --exchange-dir (" + why + ")", e);
        }
        boolean isForbidden = e instanceof AccessDeniedException || low.contains("read-only") || low.contains("permission denied");
        String advice = isForbidden ? "cannot be written: check its permissions and whether it is mounted read-only" : "could not be written";
        return new ExchangeFailure("exchange directory " + root + " " + advice + " (" + why + ")", e);
    }

    public static ExchangeFailure ofMissing(String root, Throwable cause) {
        return new ExchangeFailure("exchange directory " + root + " is not there (or not a directory): create or mount it", cause);
    }
}
