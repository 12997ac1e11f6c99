package onager.run;

import onager.rows.ExchangeSink;
import onager.rows.FrameWriter;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext$;
import org.apache.spark.SparkEnv;

/**
 * How much memory a task's write buffers may take. Spark's memory manager does not hand it out: to wait for that could last for ever in a
 * task whose reader waits for its rows. So it comes of what the memory manager leaves to others, half of it in equal parts for the tasks
 * that a process runs at once.
 */
public final class WriteMemory {
    private static final long MIB = 1L << 20;
    private static final long MOST = 48 * MIB;
    private static final long LEAST = 2 * MIB;
    /** Source: Spark's `UnifiedMemoryManager`, as is the default of the fraction. */
    private static final long RESERVED = 300 * MIB;
    private static final double FRACTION = 0.6;

    private WriteMemory() {}

    /** Return a writer of a task's rows to *sink*, whose buffers take no more than that. */
    static FrameWriter writer(ExchangeSink sink, int buckets, int frameBytes) {
        return new FrameWriter(sink, buckets, frameBytes, bytes());
    }

    /** Return the bytes for a task of this process. */
    private static long bytes() {
        SparkConf conf = SparkEnv.get().conf();
        int own = SparkContext$.MODULE$.numDriverCores(conf.get("spark.master"));
        int tasks = own > 0 ? own : conf.getInt("spark.executor.cores", Runtime.getRuntime().availableProcessors());
        return bytes(Runtime.getRuntime().maxMemory(), conf.getDouble("spark.memory.fraction", FRACTION), tasks);
    }

    /** *heap*: in bytes; *fraction*: the part of it for Spark's memory manager; *tasks*: as many as run at once. */
    public static long bytes(long heap, double fraction, int tasks) {
        double left = (heap - RESERVED) * (1.0 - fraction) / 2.0 / tasks;
        return Math.max(LEAST, Math.min(MOST, (long) left));
    }
}
