package onager.kernel;

import java.io.IOException;

/** The exchange directory itself cannot be used; the message names it and says what to do. */
public class ExchangeFailure extends IOException {
    public ExchangeFailure(String message, Throwable cause) {
        super(message, cause);
    }

    /** Say what became of a write below the directory *root*, in an operator's words. */
    public static ExchangeFailure ofWrite(String root, IOException e) {
        String why = Failures.text(e);
        String low = why.toLowerCase();
        String advice;
        if (NoSpace.is(e)) {
            return new NoSpace("exchange directory " + root + " is full: free space there or give another --exchange-dir (" + why + ")", e);
        }
        if (e instanceof java.nio.file.AccessDeniedException || low.indexOf("read-only") >= 0 || low.indexOf("permission denied") >= 0) {
            advice = "cannot be written: check its permissions and whether it is mounted read-only";
        } else {
            advice = "could not be written";
        }
        return new ExchangeFailure("exchange directory " + root + " " + advice + " (" + why + ")", e);
    }
}
