package onager.run;

import onager.rows.ExchangeOutput;
import onager.rows.ExchangeSink;
import onager.rows.FrameWriter;
import onager.rows.SortedInput;
import onager.sort.KeyOrder;
import onager.sort.Samples;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import scala.collection.Iterator;

/** Writes a partition's sorted rows to the exchange as a run, with sampled keys. */
@SuppressWarnings("serial")
final class WriteSorted extends Task {
    /** Small, since readers read whole frames, and so few rows of neighbouring ranges. */
    private static final int FRAME = 64 << 10;

    private final ExchangeOutput to;
    private final KeyOrder order;
    private final int samples;

    /** *samples*: the maximum number of keys to sample of the run; even. */
    WriteSorted(Common common, ExchangeOutput to, KeyOrder order, int samples) {
        super(common);
        this.to = to;
        this.order = order;
        this.samples = samples;
    }

    @Override
    Written write(TaskContext context, int partition, String nonce, Iterator<InternalRow> rows) throws Exception {
        UnsafeProjection key = order.projection();
        key.initialize(partition);
        Unsafe unsafe = unsafe();
        var taken = new Samples(samples);
        var done = new Written();
        ExchangeSink sink = to.open(partition, nonce);
        try {
            FrameWriter writer = WriteMemory.writer(sink, to.buckets(), Math.min(FRAME, to.frameBytes()));
            while (writer.isWanted() && rows.hasNext()) {
                UnsafeRow row = unsafe.of(rows.next());
                writer.add(SortedInput.ROWS, row);
                taken.add(row, key);
                check(context, writer.rows());
            }
            context.killTaskIfInterrupted();
            long begunNs = System.nanoTime();
            done.rows = writer.rows();
            taken.write(writer, SortedInput.SAMPLES, partition);
            writer.finish();
            done.committedSince(begunNs);
            done.bytes = sink.bytes();
            done.plainBytes = writer.bytes();
        } catch (Throwable e) {
            sink.abort(e);
            throw e;
        }
        return done;
    }

    @Override
    void discard(int partition, String nonce) {
        to.discard(partition, nonce);
    }
}
