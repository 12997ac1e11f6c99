package onager.stream;

import java.io.IOException;
import java.util.Map;
import net.jpountz.lz4.LZ4Compressor;
import net.jpountz.lz4.LZ4Factory;
import onager.failure.Failures;
import onager.rows.ExchangeOutput;
import onager.rows.ExchangeSink;
import onager.rows.Frame;
import onager.rows.PackedFrame;
import org.apache.spark.TaskContext;

/**
 * The output of a stage's tasks that stream from this executor.
 *
 * @param directory the stage's, below the exchange's
 * @param tasks the name of each execution by partition
 */
record HubOutput(String hub, String directory, Map<Integer, String> tasks, int buckets) implements ExchangeOutput {
    @Override
    public int frameBytes() {
        return StreamExecutors.of(hub).hub().limits().frameBytes;
    }

    @Override
    public void prepare() throws IOException {
        StreamExecutors.of(hub).hub().prepare(directory);
    }

    @Override
    public ExchangeSink open(int partition, String nonce) throws IOException {
        StreamHub at = StreamExecutors.of(hub).hub();
        return new Sink(at, at.begin(tasks.get(partition), buckets, directory, partition + "-" + nonce + ".frames"));
    }

    @Override
    public void discard(int partition, String nonce) {
        // the frames are dropped with the job
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

        @Override
        public boolean put(int bucket, Frame frame) throws IOException, InterruptedException {
            int most = lz4.maxCompressedLength(frame.size());
            if (scratch.length < most) {
                scratch = new byte[most];
            }
            PackedFrame packed = PackedFrame.of(frame, lz4, scratch);
            long before = task.spill.written();
            boolean isTaken = hub.put(task, bucket, packed);
            bytes += isTaken ? packed.stored() : 0;
            TaskContext context = TaskContext.get();
            if (context != null) {
                context.taskMetrics().incDiskBytesSpilled(task.spill.written() - before);
            }
            return isTaken;
        }

        @Override
        public void finish(long[] rows) throws IOException {
            hub.finish(task, rows);
        }

        @Override
        public void abort(Throwable why) {
            hub.fail(task, "task " + task.name + " failed: " + Failures.text(why));
        }

        @Override
        public long bytes() {
            return bytes;
        }

        @Override
        public long[] bytesOfBuckets() {
            return null; // what streams is read as it was planned
        }
    }
}
