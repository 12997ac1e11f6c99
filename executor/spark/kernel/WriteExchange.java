package onager.kernel;

import java.util.Map;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.DataType;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/** Gives a partition's rows to the exchange, by bucket, until they end or nobody reads any more. */
public final class WriteExchange extends Task {
    private static final long MEMORY = 48L << 20;

    private final ExchangeOutput to;
    private final Expression bucketOf;
    private final Seq output;

    /** *bucketOf*: an int expression over the attributes *output*, or null: rows are dealt out in turn. */
    public WriteExchange(String run, Map nonces, DataType[] types, ExchangeOutput to, Expression bucketOf, Seq output) {
        super(run, nonces, types);
        this.to = to;
        this.bucketOf = bucketOf;
        this.output = output;
    }

    protected Written write(TaskContext context, int partition, String nonce, Iterator rows) throws Exception {
        int buckets = to.buckets();
        UnsafeProjection bucket = bucketOf == null ? null : UnsafeProjection.create(Kernel.seq(new Object[] {bucketOf}), output);
        if (bucket != null) {
            bucket.initialize(partition);
        }
        UnsafeProjection[] lazy = new UnsafeProjection[1];
        int turn = Math.floorMod(partition * 31, buckets);
        Written done = new Written();
        ExchangeSink sink = to.open(partition, nonce);
        try {
            FrameWriter writer = new FrameWriter(sink, buckets, to.frameBytes(), MEMORY);
            while (writer.isWanted() && rows.hasNext()) {
                UnsafeRow row = unsafe(rows.next(), lazy);
                int into;
                if (bucket != null) {
                    into = bucket.apply((InternalRow) row).getInt(0);
                } else {
                    into = turn;
                    turn = turn + 1 == buckets ? 0 : turn + 1;
                }
                writer.add(into, row);
                if ((writer.rows & 1023) == 0) {
                    context.killTaskIfInterrupted();
                }
            }
            context.killTaskIfInterrupted();
            writer.finish();
            done.rows = writer.rows;
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
