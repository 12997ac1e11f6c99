package onager.jobs;

import org.apache.logging.log4j.ThreadContext;
import org.apache.spark.TaskContext;

/** Names the task attempt for which a thread works in all that it logs; `log4j2.properties` puts the name in front of each line. */
public final class Attempt {
    /** The property of a run's Spark job that names its attempts: `JOB/STAGE.ATTEMPT|PARTITION:ATTEMPT,...`. */
    static final String NAMES = "onager.attempts";

    /** The property of Spark jobs that are all of one attempt. Spark itself hands `mdc.*` on to its tasks' threads. */
    static final String NAME = "mdc.onager.attempt";

    private static final String KEY = "onager.attempt";

    private Attempt() {}

    /** Name the attempt that the task of *context* is of, until `leave`; return whether it is known. */
    public static boolean enter(TaskContext context) {
        String names = context.getLocalProperty(NAMES);
        String name = names == null ? null : nameOf(names, context.partitionId());
        if (name != null) {
            enter(name);
        }
        return name != null;
    }

    static void enter(String name) {
        ThreadContext.put(KEY, name);
    }

    public static void leave() {
        ThreadContext.remove(KEY);
    }

    /** Return the name of *partition*'s attempt, as `TaskKey` of Python writes it; null if *names* has none. */
    static String nameOf(String names, int partition) {
        int bar = names.indexOf('|');
        if (bar < 0) {
            return null;
        }
        String mine = partition + ":";
        int at = names.startsWith(mine, bar + 1) ? bar + 1 : names.indexOf("," + mine, bar) + 1;
        if (at <= 0) {
            return null;
        }
        int end = names.indexOf(',', at);
        String attempt = names.substring(at + mine.length(), end < 0 ? names.length() : end);
        return names.substring(0, bar) + "/" + partition + "." + attempt;
    }
}
