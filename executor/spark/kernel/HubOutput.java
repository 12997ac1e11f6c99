package onager.kernel;

import java.io.IOException;
import java.util.Map;
import net.jpountz.lz4.LZ4Compressor;
import net.jpountz.lz4.LZ4Factory;
import org.apache.spark.TaskContext;

/** The output of a stage's tasks that others read from this executor while they run. */
public final class HubOutput implements ExchangeOutput {
    private final String hub;
    private final String directory;
    private final Map tasks;
    private final int buckets;

    /** *tasks*: the name of each execution by partition, as Integer to String; *directory*: the stage's, below the exchange's. */
    HubOutput(String hub, String directory, Map tasks, int buckets) {
        this.hub = hub;
        this.directory = directory;
        this.tasks = tasks;
        this.buckets = buckets;
    }

    public int buckets() {
        return buckets;
    }

    public int frameBytes() {
        return StreamHub.of(hub).limits().frameBytes;
    }

    public void prepare() throws IOException {
        StreamHub.of(hub).prepare(directory);
    }

    public ExchangeSink open(int partition, String nonce) throws IOException {
        StreamHub at = StreamHub.of(hub);
        return new Sink(at, at.begin((String) tasks.get(Integer.valueOf(partition)), buckets, directory, partition + "-" + nonce + ".frames"));
    }

    public void discard(int partition, String nonce) {
        // what was streamed goes with the job
    }

    private static final class Sink implements ExchangeSink {
        private final LZ4Compressor lz4 = LZ4Factory.fastestInstance().fastCompressor();
        private final StreamHub hub;
        private final HubTask task;
        private byte[] scratch = new byte[0];
        private long bytes = 0;

        Sink(StreamHub hub, HubTask task) {
            this.hub = hub;
            this.task = task;
        }

        public boolean put(int bucket, Frame frame) throws IOException, InterruptedException {
            int most = lz4.maxCompressedLength(frame.size);
            if (scratch.length < most) {
                scratch = new byte[most];
            }
            PackedFrame packed = PackedFrame.of(frame, lz4, scratch);
            long before = task.spill.written();
            boolean isTaken = hub.put(task, bucket, packed);
            bytes += isTaken ? packed.stored : 0;
            TaskContext context = TaskContext.get();
            if (context != null) {
                context.taskMetrics().incDiskBytesSpilled(task.spill.written() - before);
            }
            return isTaken;
        }

        public void finish(long[] rows) throws IOException {
            hub.finish(task, rows);
        }

        public void abort(Throwable why) {
            hub.fail(task, "task " + task.name + " failed: " + Failures.text(why));
        }

        public long bytes() {
            return bytes;
        }
    }
}
