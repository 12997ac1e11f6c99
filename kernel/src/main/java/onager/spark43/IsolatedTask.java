package onager.spark43;

import java.nio.ByteBuffer;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import onager.values.Seqs;
import org.apache.spark.JobArtifactSet$;
import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.memory.UnifiedMemoryManager;
import org.apache.spark.rdd.RDD;
import org.apache.spark.scheduler.Task;
import org.apache.spark.serializer.SerializerInstance;
import org.apache.spark.sql.catalyst.InternalRow;
import scala.Function2;
import scala.Option;
import scala.collection.Iterator;
import scala.math.BigDecimal;

/**
 * One partition of an RDD, run on the calling thread as Spark's executor would run it: from its serialised form, with its own task context
 * and memory. It takes no slot of Spark's scheduler, so tasks may wait for each other.
 */
@SuppressWarnings("serial")
public final class IsolatedTask<T> extends Task<T> {
    /** Ids of task attempts, far above those of Spark's scheduler. */
    private static final AtomicLong ATTEMPTS = new AtomicLong(1L << 40);
    /** Makes pages small, since each operator allocates one at once, and many tasks run. */
    private static final int PAGE_DIVISOR = 64;

    private final byte[] binary;
    private final long memoryBytes;

    private IsolatedTask(SparkContext sc, int stage, int partition, int partitions, byte[] binary, long memoryBytes) {
        super(stage, 0, partition, partitions, JobArtifactSet$.MODULE$.getActiveOrDefault(sc), (Properties) sc.getLocalProperties().clone(),
                bytes(serializer().serialize(TaskMetrics.registered(), Seqs.tag(TaskMetrics.class))),
                Option.empty(), Option.empty(), Option.empty(), false);
        this.binary = binary;
        this.memoryBytes = memoryBytes;
    }

    private static SerializerInstance serializer() {
        return SparkEnv.get().closureSerializer().newInstance();
    }

    private static byte[] bytes(ByteBuffer buffer) {
        var all = new byte[buffer.remaining()];
        buffer.get(all);
        return all;
    }

    /** Make a task that passes *partition* of *rdd* to *body*, which is serialised, under the calling thread's Spark properties. */
    public static <T> IsolatedTask<T> of(SparkContext sc, RDD<InternalRow> rdd, Function2<TaskContext, Iterator<InternalRow>, T> body, int stage,
            int partition, long memoryBytes) {
        Object[] parts = {rdd, body, rdd.partitions()[partition]};
        byte[] binary = bytes(serializer().serialize(parts, Seqs.tag(Object[].class)));
        return new IsolatedTask<>(sc, stage, partition, rdd.getNumPartitions(), binary, memoryBytes);
    }

    @Override
    @SuppressWarnings("unchecked")
    public T runTask(TaskContext context) {
        Object[] parts = serializer().deserialize(ByteBuffer.wrap(binary), Thread.currentThread().getContextClassLoader(),
                Seqs.tag(Object[].class));
        Iterator<InternalRow> rows = ((RDD<InternalRow>) parts[0]).iterator((Partition) parts[2], context);
        return ((Function2<TaskContext, Iterator<InternalRow>, T>) parts[1]).apply(context, rows);
    }

    /** Run the task to its end; exceptions are thrown unchanged. */
    public T run() {
        SparkEnv env = SparkEnv.get();
        long attempt = ATTEMPTS.incrementAndGet();
        var memory = new SmallPages(new UnifiedMemoryManager(env.conf(), memoryBytes, 0L, PAGE_DIVISOR), attempt);
        setTaskMemoryManager(memory);
        try {
            return run(attempt, 0, env.metricsSystem(), BigDecimal.valueOf(1L), Seqs.map(java.util.Map.of()), Option.empty());
        } finally {
            env.blockManager().releaseAllLocksForTask(attempt);
            memory.cleanUpAllAllocatedMemory();
        }
    }
}
