package onager.rows;

import org.apache.spark.TaskContext;

/** The time that a task waits for one input: measured by frame, and added to Spark's metric, which counts milliseconds. */
public final class FetchWait {
    private static final long MS = 1_000_000L;

    private final TaskContext context;
    private long restNs = 0;

    /** *context*: null outside a task. */
    public FetchWait(TaskContext context) {
        this.context = context;
    }

    /** Add the time since *begunNs*, by `System.nanoTime`. */
    public void since(long begunNs) {
        restNs += System.nanoTime() - begunNs;
        if (restNs >= MS && context != null) {
            context.taskMetrics().shuffleReadMetrics().incFetchWaitTime(restNs / MS);
            restNs %= MS;
        }
    }
}
