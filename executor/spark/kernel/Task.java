package onager.kernel;

import java.io.Serializable;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.TaskContext;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.DataType;
import scala.collection.Iterator;
import scala.runtime.AbstractFunction2;

/**
 * What Spark runs for each partition of a task set. A partition that fails does not fail its Spark job: the exception
 * becomes that partition's outcome, so its neighbours go on.
 */
public abstract class Task extends AbstractFunction2 implements Serializable {
    /** Tasks that nobody wants any more, as the driver knows: `run/partition`. Spark starts a killed task again. */
    static final Set UNWANTED = ConcurrentHashMap.newKeySet();

    /** What a written partition amounts to. */
    static final class Written {
        long rows = 0;
        long bytes = 0;
        String[] files = new String[0];
        byte[] inline = null;
        boolean isInline = false;
        /** Of what is read as a result: seals it. */
        String checksum = "";
    }

    protected final String run;
    protected final DataType[] types;
    private final Map nonces;
    /** Whether an exception fails the Spark job, as in plain Spark, rather than become the partition's outcome. */
    boolean isStrict = false;

    /** *nonces*: by partition, as Integer to String, the name of this execution. What Spark starts again gets one of its own. */
    protected Task(String run, Map nonces, DataType[] types) {
        this.run = run;
        this.nonces = nonces;
        this.types = types;
    }

    /** Consume *rows* and write them; *nonce* names this execution's files. */
    protected abstract Written write(TaskContext context, int partition, String nonce, Iterator rows) throws Exception;

    /** Remove what an execution has written, because nobody will ever name it; what fails goes with the job. */
    abstract void discard(Outcome outcome);

    public Object apply(Object taskContext, Object rows) {
        TaskContext context = (TaskContext) taskContext;
        int partition = context.partitionId();
        long started = System.currentTimeMillis();
        Map fields = new LinkedHashMap();
        byte[] inline = null;
        fields.put("started_ms", Long.valueOf(started));
        boolean isAgain = context.attemptNumber() > 0 || context.stageAttemptNumber() > 0;
        String nonce = (String) nonces.get(Integer.valueOf(partition));
        if (isAgain) {
            nonce += "-" + context.taskAttemptId(); // the first may be writing still
        }
        fields.put("nonce", nonce);
        try {
            if (ClusterPlugin.isUnwanted(run + "/" + partition, isAgain)) {
                throw new org.apache.spark.TaskKilledException("cancelled");
            }
            Written w = write(context, partition, nonce, (Iterator) rows);
            inline = w.inline;
            fields.put("rows", Long.valueOf(w.rows));
            fields.put("bytes", Long.valueOf(w.bytes));
            fields.put("files", w.files);
            fields.put("inline", Boolean.valueOf(w.isInline));
            fields.put("checksum", w.checksum);
        } catch (Throwable e) {
            if (isStrict) {
                if (e instanceof RuntimeException) {
                    throw (RuntimeException) e;
                }
                if (e instanceof Error) {
                    throw (Error) e;
                }
                throw new RuntimeException(e);
            }
            fields.put("failure", Failures.describe(e, context.isInterrupted()));
            Thread.interrupted(); // the flag has been heard; Spark's own reporting must not trip over it
        }
        TaskMetrics m = context.taskMetrics();
        long now = System.currentTimeMillis();
        fields.put("ended_ms", Long.valueOf(now));
        fields.put("rows_read", Long.valueOf(m.inputMetrics().recordsRead()));
        fields.put("bytes_in", Long.valueOf(m.shuffleReadMetrics().totalBytesRead()));
        fields.put("spill_bytes", Long.valueOf(m.diskBytesSpilled()));
        fields.put("peak_memory_bytes", Long.valueOf(m.peakExecutionMemory()));
        return new Outcome(partition, fields, inline);
    }

    static void remove(Store store, String name) {
        try {
            store.delete(name);
        } catch (java.io.IOException e) {
            // it goes with the job
        }
    }

    /** Rows as UnsafeRow: nearly every operator makes them so, the rest are converted. */
    protected final UnsafeRow unsafe(Object row, UnsafeProjection[] lazy) {
        if (row instanceof UnsafeRow) {
            return (UnsafeRow) row;
        }
        if (lazy[0] == null) {
            lazy[0] = UnsafeProjection.create(types);
        }
        return lazy[0].apply((InternalRow) row);
    }
}
