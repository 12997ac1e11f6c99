package onager.run;

import onager.rows.ExchangeOutput;
import onager.rows.ExchangeSink;
import onager.rows.FrameWriter;
import onager.values.Seqs;
import org.apache.spark.TaskContext;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/** Writes a partition's rows to the exchange, by bucket, until they end or nobody reads them any more. */
@SuppressWarnings("serial")
final class WriteExchange extends Task {
    /** With more buckets, nobody lays out who reads them. */
    private static final int MAX_SIZES = 4096;

    private final ExchangeOutput to;
    private final Expression bucketOf;
    private final Seq<Attribute> output;

    /** *bucketOf*: an int expression over the attributes *output*; null: rows are assigned in turn. */
    WriteExchange(Common common, ExchangeOutput to, Expression bucketOf, Seq<Attribute> output) {
        super(common);
        this.to = to;
        this.bucketOf = bucketOf;
        this.output = output;
    }

    @Override
    Written write(TaskContext context, int partition, String nonce, Iterator<InternalRow> rows) throws Exception {
        int buckets = to.buckets();
        UnsafeProjection bucket = bucketOf == null ? null : UnsafeProjection.create(Seqs.seq(bucketOf), output);
        if (bucket != null) {
            bucket.initialize(partition);
        }
        Unsafe unsafe = unsafe();
        int turn = Math.floorMod(partition * 31, buckets);
        var done = new Written();
        ExchangeSink sink = to.open(partition, nonce);
        try {
            FrameWriter writer = WriteMemory.writer(sink, buckets, to.frameBytes());
            while (writer.isWanted() && rows.hasNext()) {
                UnsafeRow row = unsafe.of(rows.next());
                int into = turn;
                if (bucket != null) {
                    into = bucket.apply(row).getInt(0);
                } else {
                    turn = turn + 1 == buckets ? 0 : turn + 1;
                }
                writer.add(into, row);
                check(context, writer.rows());
            }
            context.killTaskIfInterrupted();
            long begunNs = System.nanoTime();
            writer.finish();
            done.committedSince(begunNs);
            done.rows = writer.rows();
            done.bytes = sink.bytes();
            done.plainBytes = writer.bytes();
            done.bucketSizes = sizes(sink.bytesOfBuckets());
        } catch (Throwable e) {
            sink.abort(e);
            throw e;
        }
        return done;
    }

    /** Return a byte for each bucket; none if there is one bucket, if there are too many, or if *bytes*, by bucket, are not known (null). */
    private static byte[] sizes(long[] bytes) {
        if (bytes == null || bytes.length < 2 || bytes.length > MAX_SIZES) {
            return new byte[0];
        }
        var sizes = new byte[bytes.length];
        for (int i = 0; i < sizes.length; i++) {
            sizes[i] = MapStatus.compressSize(bytes[i]);
        }
        return sizes;
    }

    @Override
    void discard(int partition, String nonce) {
        to.discard(partition, nonce);
    }
}
