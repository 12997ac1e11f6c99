package onager.kernel;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.QueryContext;
import org.apache.spark.SparkThrowable;
import org.apache.spark.TaskKilledException;
import org.apache.spark.api.python.PythonException;

/** Says of an exception what kind of failure it is, and what a person should read about it. */
public final class Failures {
    static final int DETAILS = 16 * 1024;
    private static final String TRACEBACK = "Traceback (most recent call last)";
    private static final String FRAME = "  File \"";
    private static final String[] OURS = {"onager.", "org.apache.spark.", "org.apache.arrow.", "io.netty.", "scala.", "py4j."};

    private Failures() {}

    static String text(Throwable e) {
        String name = e.getClass().getSimpleName();
        return e.getMessage() == null ? name : e instanceof IOException && e.getClass() == IOException.class
                ? e.getMessage() : name + ": " + e.getMessage();
    }

    /** The exception, its cause, the cause's cause and so on. */
    private static List chain(Throwable e) {
        List all = new ArrayList();
        for (Throwable at = e; at != null && all.size() < 50 && !all.contains(at); at = at.getCause()) {
            all.add(at);
        }
        return all;
    }

    private static Throwable first(List chain, Class wanted) {
        for (int i = 0; i < chain.size(); i++) {
            if (wanted.isInstance(chain.get(i))) {
                return (Throwable) chain.get(i);
            }
        }
        return null;
    }

    private static boolean isWorkerCrash(List chain) {
        for (int i = 0; i < chain.size(); i++) {
            String m = ((Throwable) chain.get(i)).getMessage();
            if (m != null && (m.indexOf("Python worker exited unexpectedly") >= 0 || m.indexOf("Python worker process terminated") >= 0
                    || m.indexOf("Python worker failed to connect back") >= 0 || m.indexOf("Failed while reserving memory") >= 0)) {
                return true;
            }
        }
        return false;
    }

    /** Whether processes of a cluster that ran the task were lost, or the whole cluster. */
    private static boolean isClusterLoss(List chain) {
        for (int i = 0; i < chain.size(); i++) {
            String m = ((Throwable) chain.get(i)).getMessage();
            if (m != null && (m.indexOf("ExecutorLostFailure") >= 0 || m.indexOf("SparkContext was shut down") >= 0
                    || m.indexOf("on a stopped SparkContext") >= 0)) {
                return true;
            }
        }
        return false;
    }

    /** Whether a table was too large to be broadcast, for memory or by a limit of Spark's. */
    static boolean isTooLargeToBroadcast(Throwable e) {
        List chain = chain(e);
        boolean found = first(chain, OutOfMemoryError.class) != null;
        for (int i = 0; i < chain.size(); i++) {
            String m = ((Throwable) chain.get(i)).getMessage();
            found = found || m != null && (m.indexOf("Not enough memory to build and broadcast") >= 0 || m.indexOf("Cannot broadcast the table") >= 0);
        }
        return found;
    }

    /** Whether the failure is that of an input or output, which another try may not meet again. */
    private static boolean isIo(List chain) {
        if (isWorkerCrash(chain) || isClusterLoss(chain) || first(chain, OutOfMemoryError.class) != null) {
            return true;
        }
        if (first(chain, BrokenStream.class) != null || first(chain, ExchangeFailure.class) != null) {
            return true; // a Python function whose rows break off fails, too, and that is not its fault
        }
        SparkThrowable said = said(chain);
        if (said != null && said.getCondition() != null && said.getCondition().startsWith("FAILED_EXECUTE_UDF")) {
            return false; // the user's own function raised it
        }
        Throwable io = first(chain, IOException.class);
        if (io == null || first(chain, PythonException.class) != null) {
            return false;
        }
        return !(io instanceof FileNotFoundException) && !(io instanceof java.io.NotSerializableException) && !(io instanceof java.nio.file.NoSuchFileException)
                && !(io instanceof com.fasterxml.jackson.core.JacksonException) && !(io instanceof java.nio.charset.CharacterCodingException);
    }

    /** The innermost exception that carries an error class of Spark's own: closest to what the user wrote. */
    private static SparkThrowable said(List chain) {
        for (int i = chain.size() - 1; i >= 0; i--) {
            if (chain.get(i) instanceof SparkThrowable) {
                SparkThrowable s = (SparkThrowable) chain.get(i);
                if (s.getCondition() != null && !s.getCondition().startsWith("_LEGACY") && !s.getCondition().equals("INTERNAL_ERROR")) {
                    return s;
                }
            }
        }
        return null;
    }

    /**
     * Whether the query, its data or its functions are known to be at fault: Spark says so, by a condition or by refusing an argument, or
     * it was raised by something that neither Spark nor we brought.
     */
    private static boolean isUsers(List chain) {
        if (first(chain, PythonException.class) != null || first(chain, ChangedInput.class) != null || first(chain, RefusedException.class) != null
                || said(chain) != null) {
            return true;
        }
        for (int i = chain.size() - 1; i >= 0; i--) {
            if (chain.get(i) instanceof SparkThrowable && ((SparkThrowable) chain.get(i)).getCondition() != null) {
                return !((SparkThrowable) chain.get(i)).getCondition().startsWith("INTERNAL_ERROR");
            }
        }
        Throwable root = (Throwable) chain.get(chain.size() - 1);
        if (root instanceof SparkThrowable || root instanceof IOException || root instanceof ArithmeticException
                || root instanceof NumberFormatException || root instanceof java.time.DateTimeException) {
            return true; // of the latter, what is left are files that are not there, and text that is none
        }
        String thrower = thrower(root);
        if (root instanceof IllegalArgumentException || root instanceof UnsupportedOperationException) {
            return !isOurs(thrower) || thrower.startsWith("org.apache.spark.") || thrower.startsWith("scala.Predef"); // require(…)
        }
        return !isOurs(thrower);
    }

    /** The class that raised *e*, or called what Java has for it; empty when nobody knows. */
    private static String thrower(Throwable e) {
        StackTraceElement[] frames = e.getStackTrace();
        for (int i = 0; i < frames.length; i++) {
            String name = frames[i].getClassName();
            if (!name.startsWith("java.") && !name.startsWith("jdk.") && !name.startsWith("sun.")) {
                return name;
            }
        }
        return "";
    }

    private static boolean isOurs(String thrower) {
        for (int i = 0; i < OURS.length; i++) {
            if (thrower.startsWith(OURS[i])) {
                return true;
            }
        }
        return thrower.isEmpty();
    }

    /** Whether what travels in a plan does not fit the classes that are here. */
    private static boolean isUnreadable(List chain) {
        Throwable stream = first(chain, java.io.ObjectStreamException.class);
        return (stream != null && !(stream instanceof java.io.NotSerializableException))
                || first(chain, ClassNotFoundException.class) != null || first(chain, LinkageError.class) != null;
    }

    /** The frames of the last traceback in *text* that are not of PySpark itself, or none. */
    private static String frames(String text) {
        int at = text.lastIndexOf(TRACEBACK);
        if (at < 0) {
            return "";
        }
        String[] lines = text.substring(at).split("\n");
        StringBuilder kept = new StringBuilder();
        String pyspark = null;
        boolean isKept = false;
        for (int i = 1; i < lines.length && lines[i].startsWith("  "); i++) {
            if (lines[i].startsWith(FRAME)) {
                if (pyspark == null) { // it begins in a worker of Spark's
                    int end = lines[i].indexOf("/pyspark/");
                    pyspark = end < 0 ? FRAME + "/pyspark/" : lines[i].substring(0, end + 9);
                }
                isKept = !lines[i].startsWith(pyspark);
            }
            if (isKept) {
                kept.append('\n').append(lines[i]);
            }
        }
        return kept.length() == 0 ? "" : "\n" + TRACEBACK + ":" + kept;
    }

    /** The exception at the end of a Python traceback: what follows its last frame, without Spark's additions. */
    private static String raised(String text) {
        int at = text.lastIndexOf(TRACEBACK);
        if (at < 0) {
            return text.trim();
        }
        String[] lines = text.substring(at).split("\n");
        int from = lines.length;
        while (from > 1 && !lines[from - 1].startsWith("  ")) {
            from--;
        }
        StringBuilder said = new StringBuilder();
        for (int i = from; i < lines.length && !lines[i].trim().startsWith("SQLSTATE:"); i++) {
            said.append(lines[i]).append('\n');
        }
        return said.length() == 0 ? text.trim() : said.toString().trim();
    }

    /** Return the failure as the fields of the protocol's `Failure`; *killed*: the task had been asked to stop. */
    public static Map describe(Throwable e, boolean killed) {
        List chain = chain(e);
        Map out = new LinkedHashMap();
        FetchFailure fetch = (FetchFailure) first(chain, FetchFailure.class);
        SparkThrowable said = said(chain);
        Throwable python = first(chain, PythonException.class);
        Throwable root = (Throwable) chain.get(chain.size() - 1);
        if (killed || first(chain, TaskKilledException.class) != null || first(chain, InterruptedException.class) != null
                || first(chain, java.nio.channels.ClosedByInterruptException.class) != null) {
            out.put("kind", "task_killed");
        } else if (fetch != null) {
            out.put("kind", "fetch_failed");
            out.put("fetch_stage", Integer.valueOf(fetch.stage));
            out.put("fetch_partition", Integer.valueOf(fetch.partition));
            out.put("fetch_nonce", fetch.nonce);
        } else {
            boolean isIo = isIo(chain);
            boolean isUsers = !isIo && isUsers(chain);
            out.put("kind", isUsers ? "user_error" : "io_error");
            if (first(chain, NoSpace.class) != null) {
                out.put("cause", "no_space");
            } else if (!isUsers && (!isIo || isUnreadable(chain))) {
                out.put("cause", "internal_error");
            }
        }
        out.put("message", withoutBlankLines(message(chain, fetch, said, python, root)));
        if (said != null) {
            out.put("error_class", said.getCondition());
            out.put("sql_state", said.getSqlState() == null ? "" : said.getSqlState());
            QueryContext[] context = said.getQueryContext();
            out.put("query_context", context == null || context.length == 0 ? "" : context[0].summary());
        } else if (python != null) {
            String last = raised(python.getMessage());
            int colon = last.indexOf(':');
            out.put("error_class", colon < 0 ? last : last.substring(0, colon));
        } else {
            out.put("error_class", root.getClass().getName());
        }
        out.put("out_of_memory", Boolean.valueOf(first(chain, OutOfMemoryError.class) != null));
        out.put("details", details(e, python));
        return out;
    }

    /** Where it came from: of a Python function's exception its traceback, which no frame of the JVM adds anything to. */
    private static String details(Throwable e, Throwable python) {
        if (python != null) {
            String text = python.getMessage();
            return text.substring(whole(text, text.length() - DETAILS));
        }
        StringWriter trace = new StringWriter();
        e.printStackTrace(new PrintWriter(trace));
        String text = trace.toString();
        return text.length() > DETAILS ? text.substring(0, whole(text, DETAILS)) : text;
    }

    /** Where to cut *text* at about *at*, not negative and not within a character. */
    private static int whole(String text, int at) {
        return at > 0 && Character.isSurrogatePair(text.charAt(at - 1), text.charAt(at)) ? at - 1 : Math.max(at, 0);
    }

    /** Leaves out the lines above a statement that Spark shows: those of the script before it were blanked out. */
    private static String withoutBlankLines(String message) {
        return message == null ? null : message.replaceFirst("(== SQL ==\n)\\n+", "$1");
    }

    private static String message(List chain, FetchFailure fetch, SparkThrowable said, Throwable python, Throwable root) {
        if (fetch != null) {
            return fetch.getMessage();
        }
        Throwable exchange = first(chain, ExchangeFailure.class);
        if (exchange != null) {
            return exchange.getMessage();
        }
        Throwable broken = first(chain, BrokenStream.class);
        if (broken != null) {
            return broken.getMessage();
        }
        if (isWorkerCrash(chain)) {
            return "a Python worker died while it ran a function of the query (killed, out of memory, or crashed in native code)";
        }
        if (python != null) {
            return raised(python.getMessage()) + frames(python.getMessage());
        }
        if (said != null) {
            String m = ((Throwable) said).getMessage();
            return root == said || root.getMessage() == null || m.indexOf(root.getMessage()) >= 0 ? m : m + ": " + text(root);
        }
        return text(root);
    }
}
