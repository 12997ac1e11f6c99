package onager.kernel;

import java.nio.ByteBuffer;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.JobArtifactSet$;
import org.apache.spark.Partition;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.memory.TaskMemoryManager;
import org.apache.spark.memory.UnifiedMemoryManager;
import org.apache.spark.rdd.RDD;
import org.apache.spark.serializer.SerializerInstance;
import scala.Option;
import scala.collection.Iterator;
import scala.reflect.ClassTag$;

/**
 * One partition of an RDD, run on the calling thread as Spark's executor would run it: from its serialised form, in a task
 * context and with memory of its own. It takes no slot of Spark's scheduler, so tasks may wait for one another.
 */
final class IsolatedTask extends org.apache.spark.scheduler.Task {
    /** Numbers of task attempts far above those that Spark's scheduler gives. */
    private static final AtomicLong ATTEMPTS = new AtomicLong(1L << 40);
    /** Makes pages small: an operator asks for one at once, and many tasks run. */
    private static final int PAGE_DIVISOR = 64;

    private final String run;
    private final byte[] binary;
    private final long memoryBytes;

    private IsolatedTask(Pipeline pipeline, int stage, int partition, int partitions, Properties properties, byte[] binary) {
        super(stage, 0, partition, partitions, JobArtifactSet$.MODULE$.getActiveOrDefault(pipeline.sc), properties,
                bytes(serializer().serialize(TaskMetrics.registered(), ClassTag$.MODULE$.apply(TaskMetrics.class))),
                Option.empty(), Option.empty(), Option.empty(), false);
        this.run = pipeline.run;
        this.binary = binary;
        this.memoryBytes = pipeline.taskMemoryBytes;
    }

    private static SerializerInstance serializer() {
        return SparkEnv.get().closureSerializer().newInstance();
    }

    private static byte[] bytes(ByteBuffer buffer) {
        byte[] all = new byte[buffer.remaining()];
        buffer.get(all);
        return all;
    }

    /** Make the task of *partition* of *rdd*, under the calling thread's Spark properties. */
    static IsolatedTask of(Pipeline pipeline, RDD rdd, Task body, int stage, int partition) {
        Object[] parts = new Object[] {rdd, body, rdd.partitions()[partition]};
        byte[] binary = bytes(serializer().serialize(parts, ClassTag$.MODULE$.apply(Object[].class)));
        Properties properties = (Properties) pipeline.sc.getLocalProperties().clone();
        return new IsolatedTask(pipeline, stage, partition, rdd.getNumPartitions(), properties, binary);
    }

    public Object runTask(TaskContext context) {
        Object[] parts = (Object[]) serializer().deserialize(ByteBuffer.wrap(binary), Thread.currentThread().getContextClassLoader(),
                ClassTag$.MODULE$.apply(Object[].class));
        Iterator rows = ((RDD) parts[0]).iterator((Partition) parts[2], context);
        return ((Task) parts[1]).apply(context, Pipeline.interposed(run).rows(rows, stageId(), partitionId()));
    }

    /** Run it to its end; what goes wrong is thrown as it is. */
    Outcome run() {
        SparkEnv env = SparkEnv.get();
        long attempt = ATTEMPTS.incrementAndGet();
        TaskMemoryManager memory = new SmallPages(new UnifiedMemoryManager(env.conf(), memoryBytes, 0L, PAGE_DIVISOR), attempt);
        setTaskMemoryManager(memory);
        try {
            return (Outcome) run(attempt, 0, env.metricsSystem(), scala.math.BigDecimal.valueOf(1L),
                    scala.collection.immutable.Map$.MODULE$.empty(), Option.empty());
        } finally {
            env.blockManager().releaseAllLocksForTask(attempt);
            memory.cleanUpAllAllocatedMemory();
        }
    }
}
