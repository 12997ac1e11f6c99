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

/** Writes a partition's rows into a row file, by bucket. A partition without rows writes no file. */
public final class WriteExchange extends Task {
    private final Store store;
    private final String directory;
    private final int buckets;
    private final Expression bucketOf;
    private final Seq output;

    /** *bucketOf*: an int expression over the attributes *output*, or null: rows are dealt out in turn. */
    public WriteExchange(String run, Map nonces, DataType[] types, Store store, String directory, int buckets, Expression bucketOf,
            Seq output) {
        super(run, nonces, types);
        this.store = store;
        this.directory = directory;
        this.buckets = buckets;
        this.bucketOf = bucketOf;
        this.output = output;
    }

    protected Written write(TaskContext context, int partition, String nonce, Iterator rows) throws Exception {
        Written done = new Written();
        if (!store.exists()) {
            throw new ExchangeFailure("exchange directory " + store.root + " is not there (or not a directory): create or mount it", null);
        }
        if (!rows.hasNext()) {
            return done;
        }
        UnsafeProjection bucket = bucketOf == null ? null : UnsafeProjection.create(Kernel.seq(new Object[] {bucketOf}), output);
        if (bucket != null) {
            bucket.initialize(partition);
        }
        UnsafeProjection[] lazy = new UnsafeProjection[1];
        int turn = Math.floorMod(partition * 31, buckets);
        String name = directory + "/" + partition + "-" + nonce + ".rows";
        Store.Pending file = store.createIn(name);
        try {
            RowFileWriter writer = new RowFileWriter(file, buckets);
            while (rows.hasNext()) {
                UnsafeRow row = unsafe(rows.next(), lazy);
                int to;
                if (bucket != null) {
                    to = bucket.apply((InternalRow) row).getInt(0);
                } else {
                    to = turn;
                    turn = turn + 1 == buckets ? 0 : turn + 1;
                }
                writer.add(to, row);
                if ((writer.rows & 1023) == 0) {
                    context.killTaskIfInterrupted();
                }
            }
            writer.finish();
            context.killTaskIfInterrupted();
            file.commit();
            done.rows = writer.rows;
            done.bytes = file.position;
        } catch (Throwable e) {
            file.abort();
            throw e;
        }
        return done;
    }

    void discard(Outcome outcome) {
        remove(store, directory + "/" + outcome.partition + "-" + outcome.fields.get("nonce") + ".rows");
    }
}
