package onager.run;

import java.io.Serializable;
import java.util.LinkedHashMap;
import java.util.Map;
import onager.bind.Meters;
import onager.failure.Failures;
import onager.jobs.Attempt;
import onager.jobs.Readings;
import onager.jobs.UnwantedTasks;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.DataType;
import scala.collection.Iterator;
import scala.runtime.AbstractFunction2;

/**
 * The function that Spark runs for each partition of a task set. A failed partition does not fail its Spark job: the exception becomes the
 * partition's outcome, and the other partitions continue.
 */
@SuppressWarnings("serial")
public abstract class Task extends AbstractFunction2<TaskContext, Iterator<InternalRow>, Outcome> implements Serializable {
    /** A task checks for cancellation every LOOK + 1 rows; a bit mask. */
    private static final long LOOK = 1023L;

    /**
     * What all tasks of a task set share.
     *
     * @param nonces the nonce of each partition's execution; a task that Spark restarts gets another one
     * @param types the types of the columns
     * @param meters the metrics to report; null: none
     */
    public record Common(String run, Map<Integer, String> nonces, DataType[] types, Meters meters) implements Serializable {}

    private final Common common;
    private boolean isStrict = false;

    protected Task(Common common) {
        this.common = common;
    }

    /** Make an exception fail the Spark job, as in plain Spark, instead of becoming the partition's outcome; return the task. */
    public Task strict() {
        isStrict = true;
        return this;
    }

    /** Write *rows*; *nonce* is part of the names of this execution's files. */
    abstract Written write(TaskContext context, int partition, String nonce, Iterator<InternalRow> rows) throws Exception;

    /** Remove the output of the execution *nonce*, which no report names; files that cannot be removed go with the job. */
    abstract void discard(int partition, String nonce);

    @Override
    public Outcome apply(TaskContext context, Iterator<InternalRow> rows) {
        int partition = context.partitionId();
        var fields = new LinkedHashMap<String, Object>();
        byte[] inline = null;
        fields.put("started_ms", System.currentTimeMillis());
        boolean isAgain = context.attemptNumber() > 0 || context.stageAttemptNumber() > 0;
        String nonce = common.nonces.get(partition) + (isAgain ? "-" + context.taskAttemptId() : ""); // the first execution may still be writing
        fields.put("nonce", nonce);
        var reading = Readings.begin(common.run, context);
        boolean isNamed = Attempt.enter(context);
        try {
            if (UnwantedTasks.has(common.run, partition, isAgain)) {
                throw new TaskKilledException("cancelled");
            }
            Written written = write(context, partition, nonce, LateRDD.begun(rows));
            written.into(fields);
            inline = written.inline;
            if (common.meters != null) { // all rows are written now
                fields.put("op_metrics", common.meters.read(context));
            }
        } catch (Throwable e) {
            if (isStrict && e instanceof Error error) {
                throw error;
            }
            if (isStrict) {
                throw e instanceof RuntimeException same ? same : new RuntimeException(e);
            }
            fields.put("failure", Failures.describe(e, context.isInterrupted()));
            Thread.interrupted(); // clear the flag, which would disturb Spark's own reporting
        } finally {
            if (isNamed) {
                Attempt.leave();
            }
            Readings.end(reading);
        }
        var m = context.taskMetrics();
        fields.put("ended_ms", System.currentTimeMillis());
        fields.put("rows_read", m.inputMetrics().recordsRead());
        fields.put("bytes_in", m.shuffleReadMetrics().totalBytesRead());
        fields.put("fetch_ms", m.shuffleReadMetrics().fetchWaitTime());
        fields.put("spill_bytes", m.diskBytesSpilled());
        fields.put("peak_memory_bytes", m.peakExecutionMemory());
        return new Outcome(partition, fields, inline);
    }

    /** Throw if the task was cancelled; *rows*: how many it has processed, since it checks only now and then. */
    static void check(TaskContext context, long rows) {
        if ((rows & LOOK) == 0) {
            context.killTaskIfInterrupted();
        }
    }

    /** Return a converter to UnsafeRows, which passes them through: nearly all operators return UnsafeRows. */
    final Unsafe unsafe() {
        return new Unsafe(common.types);
    }

    static final class Unsafe {
        private final DataType[] types;
        private UnsafeProjection projection = null;

        Unsafe(DataType[] types) {
            this.types = types;
        }

        UnsafeRow of(InternalRow row) {
            if (row instanceof UnsafeRow unsafe) {
                return unsafe;
            }
            if (projection == null) {
                projection = UnsafeProjection.create(types);
            }
            return projection.apply(row);
        }
    }
}
