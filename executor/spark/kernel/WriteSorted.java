package onager.kernel;

import java.util.Map;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.DataType;
import scala.collection.Iterator;

/** Gives a partition's rows, which are sorted, to the exchange as a run, and keys of it beside. */
public final class WriteSorted extends Task {
    private static final long MEMORY = 48L << 20;
    /** Readers take frames whole: small ones, and few rows are read that belong to a neighbour. */
    private static final int FRAME = 64 << 10;

    private final ExchangeOutput to;
    private final KeyOrder order;
    private final int samples;

    /** *samples*: the most keys to take of the run, an even number. */
    public WriteSorted(String run, Map nonces, DataType[] types, ExchangeOutput to, KeyOrder order, int samples) {
        super(run, nonces, types);
        this.to = to;
        this.order = order;
        this.samples = samples;
    }

    protected Written write(TaskContext context, int partition, String nonce, Iterator rows) throws Exception {
        UnsafeProjection key = order.projection();
        key.initialize(partition);
        UnsafeProjection[] lazy = new UnsafeProjection[1];
        Samples taken = new Samples(samples);
        Written done = new Written();
        ExchangeSink sink = to.open(partition, nonce);
        try {
            FrameWriter writer = new FrameWriter(sink, to.buckets(), Math.min(FRAME, to.frameBytes()), MEMORY);
            while (writer.isWanted() && rows.hasNext()) {
                UnsafeRow row = unsafe(rows.next(), lazy);
                writer.add(SortedInput.ROWS, row);
                taken.add(row, key);
                if ((writer.rows & 1023) == 0) {
                    context.killTaskIfInterrupted();
                }
            }
            context.killTaskIfInterrupted();
            done.rows = writer.rows;
            taken.write(writer, SortedInput.SAMPLES, partition);
            writer.finish();
            done.bytes = sink.bytes();
        } catch (Throwable e) {
            sink.abort(e);
            throw e;
        }
        return done;
    }

    void discard(Outcome outcome) {
        to.discard(outcome.partition, (String) outcome.fields.get("nonce"));
    }
}
