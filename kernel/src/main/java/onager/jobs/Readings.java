package onager.jobs;

import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.TaskContext;

/** The tasks of runs that run in this process, so that it is known how much they have read so far. */
public final class Readings {
    private static final Set<Reading> RUNNING = ConcurrentHashMap.newKeySet();

    private Readings() {}

    /** A running task; two are never equal. */
    public record Reading(String run, TaskContext context) {
        public int partition() {
            return context.partitionId();
        }

        /** Return the rows that it has read from sources and exchanges; another thread counts them, and this may be a little behind. */
        public long rows() {
            var m = context.taskMetrics();
            return m.inputMetrics().recordsRead() + m.shuffleReadMetrics().recordsRead();
        }

        public long bytes() {
            var m = context.taskMetrics();
            return m.inputMetrics().bytesRead() + m.shuffleReadMetrics().totalBytesRead();
        }
    }

    /** Note that a task of *run* has begun; `end` takes the result. */
    public static Reading begin(String run, TaskContext context) {
        var reading = new Reading(run, context);
        RUNNING.add(reading);
        return reading;
    }

    public static void end(Reading reading) {
        RUNNING.remove(reading);
    }

    /** Return the tasks that run now, *most* at most. */
    public static List<Reading> now(int most) {
        return RUNNING.stream().limit(most).toList();
    }
}
