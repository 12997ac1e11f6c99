package onager.failure;

import com.fasterxml.jackson.core.JacksonException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.NotSerializableException;
import java.io.ObjectStreamException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.channels.ClosedByInterruptException;
import java.nio.charset.CharacterCodingException;
import java.nio.file.NoSuchFileException;
import java.time.DateTimeException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.apache.spark.QueryContext;
import org.apache.spark.SparkException;
import org.apache.spark.SparkThrowable;
import org.apache.spark.TaskKilledException;
import org.apache.spark.api.python.PythonException;
import org.apache.spark.api.python.PythonWorkerException;

/** Classifies exceptions as failures, and makes messages of them for people. */
public final class Failures {
    private static final int DETAILS = 16 * 1024;
    private static final int MAX_CAUSES = 50;
    private static final String TRACEBACK = "Traceback (most recent call last)";
    private static final String FRAME = "  File \"";
    /** The classes of Spark's exceptions that have a text only. */
    private static final Set<Class<?>> OF_SPARK = Set.of(SparkException.class, PythonWorkerException.class, IllegalStateException.class);
    private static final Pattern WORKER_CRASH = Pattern.compile(
            "Python worker exited unexpectedly|Python worker process terminated|Python worker failed to connect back");
    private static final Pattern EXECUTOR_LOST = Pattern.compile("Job aborted due to stage failure: Task \\d+ in stage \\S+ failed \\d+ times, "
            + "most recent failure: Lost task \\S+ in stage \\S+ \\(TID \\d+\\) \\(\\S+ executor \\S+\\): ExecutorLostFailure \\(");
    private static final Pattern SHUT_DOWN = Pattern.compile("Job \\d+ cancelled because SparkContext was shut down");
    private static final Pattern STOPPED = Pattern.compile("Cannot call methods on a stopped SparkContext");
    /** A hash map cannot grow; Spark's other conditions of this kind belong to errors of class OutOfMemoryError. */
    private static final Set<String> NO_MEMORY = Set.of("_LEGACY_ERROR_TEMP_2105", "_LEGACY_ERROR_TEMP_2250");
    /** For Spark's limits of rows and of bytes. */
    private static final Set<String> TOO_LARGE_TO_BROADCAST = Set.of("_LEGACY_ERROR_TEMP_2248", "_LEGACY_ERROR_TEMP_2249");
    private static final List<String> OURS = List.of("onager.", "org.apache.spark.", "org.apache.arrow.", "io.netty.", "scala.", "py4j.");

    private Failures() {}

    public static String text(Throwable e) {
        String name = e.getClass().getSimpleName();
        if (e.getMessage() == null) {
            return name;
        }
        boolean saysAll = e.getClass() == IOException.class || e instanceof RefusedException;
        return saysAll ? e.getMessage() : name + ": " + e.getMessage();
    }

    /** Return the exception followed by its chain of causes. */
    public static List<Throwable> chain(Throwable e) {
        var all = new ArrayList<Throwable>();
        for (Throwable at = e; at != null && all.size() < MAX_CAUSES && !all.contains(at); at = at.getCause()) {
            all.add(at);
        }
        return all;
    }

    /** Return the last of the causes of *e*. */
    public static Throwable root(Throwable e) {
        List<Throwable> chain = chain(e);
        return chain.get(chain.size() - 1);
    }

    private static <T> T first(List<Throwable> chain, Class<T> wanted) {
        return chain.stream().filter(wanted::isInstance).map(wanted::cast).findFirst().orElse(null);
    }

    private static boolean has(List<Throwable> chain, Class<?>... wanted) {
        return Stream.of(wanted).anyMatch(each -> first(chain, each) != null);
    }

    /** Whether Spark itself says what begins as one of *texts*: not with a condition, nor quoting what users can write before it. */
    private static boolean sparkSays(List<Throwable> chain, Pattern... texts) {
        return chain.stream().filter(e -> e.getMessage() != null && OF_SPARK.contains(e.getClass()))
                .anyMatch(e -> Stream.of(texts).anyMatch(text -> text.matcher(e.getMessage()).lookingAt()));
    }

    private static boolean hasCondition(List<Throwable> chain, Set<String> wanted) {
        return chain.stream().anyMatch(e -> e instanceof SparkThrowable s && s.getCondition() != null && wanted.contains(s.getCondition()));
    }

    private static boolean isWorkerCrash(List<Throwable> chain) {
        return sparkSays(chain, WORKER_CRASH);
    }

    /** Whether the process that ran the task, or the whole Spark cluster, was lost. */
    private static boolean isClusterLoss(List<Throwable> chain) {
        return sparkSays(chain, EXECUTOR_LOST, SHUT_DOWN, STOPPED);
    }

    private static boolean isOutOfMemory(List<Throwable> chain) {
        return has(chain, OutOfMemoryError.class) || hasCondition(chain, NO_MEMORY);
    }

    /** The exception of Hive's client that says that the metastore which Spark was given does not answer; null: there is none. */
    private static Throwable ofMetastore(List<Throwable> chain) {
        return chain.stream().filter(e -> e.getClass().getName().startsWith("org.apache.thrift.transport.")
                || e.getMessage() != null && e.getMessage().startsWith("Could not connect to meta store")).findFirst().orElse(null);
    }

    /** Whether a table was too large to broadcast, for the memory or for a limit of Spark. */
    public static boolean isTooLargeToBroadcast(Throwable e) {
        List<Throwable> chain = chain(e);
        return isOutOfMemory(chain) || hasCondition(chain, TOO_LARGE_TO_BROADCAST);
    }

    /** Whether the failure is an I/O error, which a retry may not meet again. */
    private static boolean isIo(List<Throwable> chain) {
        if (isWorkerCrash(chain) || isClusterLoss(chain) || isOutOfMemory(chain)) {
            return true;
        }
        if (ofMetastore(chain) != null) {
            return true;
        }
        if (has(chain, BrokenStream.class, ExchangeFailure.class)) {
            return true; // a Python function whose input breaks off fails, too, but it is not its fault
        }
        SparkThrowable said = said(chain);
        if (said != null && said.getCondition() != null && said.getCondition().startsWith("FAILED_EXECUTE_UDF")) {
            return false; // the user's own function raised it
        }
        IOException io = first(chain, IOException.class);
        if (io == null || has(chain, PythonException.class)) {
            return false;
        }
        return !(io instanceof FileNotFoundException || io instanceof NotSerializableException || io instanceof NoSuchFileException
                || io instanceof JacksonException || io instanceof CharacterCodingException);
    }

    /** The innermost exception with an error class of Spark, which is closest to the user's code. */
    private static SparkThrowable said(List<Throwable> chain) {
        for (int i = chain.size() - 1; i >= 0; i--) {
            if (chain.get(i) instanceof SparkThrowable s && s.getCondition() != null && !s.getCondition().startsWith("_LEGACY")
                    && !s.getCondition().equals("INTERNAL_ERROR")) {
                return s;
            }
        }
        return null;
    }

    /**
     * Whether the query, its data or its functions are known to be at fault: Spark says so, by an error condition or by rejecting an
     * argument, or code that belongs neither to Spark nor to Onager threw the exception.
     */
    private static boolean isUsers(List<Throwable> chain) {
        if (has(chain, PythonException.class, ChangedInput.class, RefusedException.class) || said(chain) != null) {
            return true;
        }
        for (int i = chain.size() - 1; i >= 0; i--) {
            if (chain.get(i) instanceof SparkThrowable s && s.getCondition() != null) {
                return !s.getCondition().startsWith("INTERNAL_ERROR");
            }
        }
        Throwable root = chain.get(chain.size() - 1);
        if (root instanceof SparkThrowable || root instanceof IOException || root instanceof ArithmeticException
                || root instanceof NumberFormatException || root instanceof DateTimeException) {
            return true; // the remaining IOExceptions are about missing files and malformed text
        }
        String thrower = thrower(root);
        if (root instanceof IllegalArgumentException || root instanceof UnsupportedOperationException) {
            return !isOurs(thrower) || thrower.startsWith("org.apache.spark.") || thrower.startsWith("scala.Predef"); // require(…)
        }
        return !isOurs(thrower);
    }

    /** The class that threw *e*, or that called the JDK method that threw it; empty if unknown. */
    private static String thrower(Throwable e) {
        return Stream.of(e.getStackTrace()).map(StackTraceElement::getClassName)
                .filter(name -> !name.startsWith("java.") && !name.startsWith("jdk.") && !name.startsWith("sun."))
                .findFirst().orElse("");
    }

    private static boolean isOurs(String thrower) {
        return thrower.isEmpty() || OURS.stream().anyMatch(thrower::startsWith);
    }

    /** Whether a serialised plan does not fit the classes of this process. */
    private static boolean isUnreadable(List<Throwable> chain) {
        var stream = first(chain, ObjectStreamException.class);
        return stream != null && !(stream instanceof NotSerializableException) || has(chain, ClassNotFoundException.class, LinkageError.class);
    }

    /** The frames of the last traceback in *text*, without those of PySpark. */
    private static String frames(String text) {
        int at = text.lastIndexOf(TRACEBACK);
        if (at < 0) {
            return "";
        }
        String[] lines = text.substring(at).split("\n");
        var kept = new StringBuilder();
        String pyspark = null;
        boolean isKept = false;
        for (int i = 1; i < lines.length && lines[i].startsWith("  "); i++) {
            if (lines[i].startsWith(FRAME)) {
                if (pyspark == null) { // the first frame is in Spark's worker
                    int end = lines[i].indexOf("/pyspark/");
                    pyspark = end < 0 ? FRAME + "/pyspark/" : lines[i].substring(0, end + 9);
                }
                isKept = !lines[i].startsWith(pyspark);
            }
            if (isKept) {
                kept.append('\n').append(lines[i]);
            }
        }
        return kept.isEmpty() ? "" : "\n" + TRACEBACK + ":" + kept;
    }

    /** The exception at the end of a Python traceback, without Spark's additions. */
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
        var said = new StringBuilder();
        for (int i = from; i < lines.length && !lines[i].trim().startsWith("SQLSTATE:"); i++) {
            said.append(lines[i]).append('\n');
        }
        return said.isEmpty() ? text.trim() : said.toString().trim();
    }

    /** Return the failure as the fields of the protocol's `Failure`; *killed*: the task had been asked to stop. */
    public static Map<String, Object> describe(Throwable e, boolean killed) {
        List<Throwable> chain = chain(e);
        var out = new LinkedHashMap<String, Object>();
        var fetch = first(chain, FetchFailure.class);
        SparkThrowable said = said(chain);
        var python = first(chain, PythonException.class);
        Throwable root = chain.get(chain.size() - 1);
        if (killed || has(chain, TaskKilledException.class, InterruptedException.class, ClosedByInterruptException.class)) {
            out.put("kind", "task_killed");
        } else if (fetch != null) {
            out.put("kind", "fetch_failed");
            out.put("fetch", Map.of("input_stage_id", fetch.stage, "input_partition", fetch.partition, "nonce", fetch.nonce));
        } else {
            boolean isIo = isIo(chain);
            boolean isUsers = !isIo && isUsers(chain);
            out.put("kind", isUsers ? "user_error" : "io_error");
            if (has(chain, NoSpace.class)) {
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
            out.put("error_class", raised(python.getMessage()).split(":", 2)[0]);
        } else {
            out.put("error_class", root.getClass().getName());
        }
        out.put("out_of_memory", isOutOfMemory(chain));
        out.put("details", details(e, python));
        return out;
    }

    /** The stack trace or, for an exception of a Python function, its traceback, to which frames of the JVM add nothing. */
    private static String details(Throwable e, Throwable python) {
        if (python != null) {
            String text = python.getMessage();
            return text.substring(whole(text, text.length() - DETAILS));
        }
        var trace = new StringWriter();
        e.printStackTrace(new PrintWriter(trace));
        String text = trace.toString();
        return text.length() > DETAILS ? text.substring(0, whole(text, DETAILS)) : text;
    }

    /** An index near *at* where *text* can be cut: not negative, and not within a surrogate pair. */
    private static int whole(String text, int at) {
        return at > 0 && Character.isSurrogatePair(text.charAt(at - 1), text.charAt(at)) ? at - 1 : Math.max(at, 0);
    }

    /** Removes the blank lines that stand for earlier statements of the script. */
    private static String withoutBlankLines(String message) {
        return message == null ? null : message.replaceFirst("(== SQL ==\n)\\n+", "$1");
    }

    private static String message(List<Throwable> chain, FetchFailure fetch, SparkThrowable said, Throwable python, Throwable root) {
        if (fetch != null) {
            return fetch.getMessage();
        }
        for (var kind : List.of(ExchangeFailure.class, BrokenStream.class)) {
            if (has(chain, kind)) {
                return first(chain, kind).getMessage();
            }
        }
        if (isWorkerCrash(chain)) {
            return "a Python worker died while it ran a function of the query (killed, out of memory, or crashed in native code)";
        }
        if (python != null) {
            return raised(python.getMessage()) + frames(python.getMessage());
        }
        Throwable away = ofMetastore(chain);
        if (away != null) {
            return "the Hive metastore does not answer, and tables are looked up there (" + text(away).lines().findFirst().orElse("") + ")";
        }
        if (said instanceof Throwable spoken) {
            String m = Advice.with(spoken.getMessage(), said);
            return root == spoken || root.getMessage() == null || m.contains(root.getMessage()) ? m : m + ": " + text(root);
        }
        return text(root);
    }
}
