package onager.kernel;

import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.SparkContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.DataType;
import scala.collection.Iterator;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractFunction2;
import scala.runtime.BoxedUnit;

/** Lets a job of Spark's make the rows of one partition, and holds them: for plans that shuffle, which no task does alone. */
final class HeldRows extends AbstractFunction2 implements Serializable {
    private static final int FRAME_BYTES = 1 << 20;

    private final DataType[] types;

    private HeldRows(DataType[] types) {
        this.types = types;
    }

    /** Return *bound*'s rows as an RDD of as many partitions, of which *partition* alone has its rows. */
    static RDD of(SparkContext sc, Kernel.Bound bound, int partition) {
        Collector rows = new Collector();
        sc.runJob(bound.rdd, new HeldRows(bound.types), Kernel.seq(new Object[] {Integer.valueOf(partition)}), rows,
                ClassTag$.MODULE$.apply(ArrayList.class));
        return new ExchangeRDD(sc, HeldInput.only(rows.frames, partition, bound.partitions()), bound.types.length);
    }

    public Object apply(Object taskContext, Object rows) {
        Frames frames = new Frames();
        FrameWriter writer = new FrameWriter(frames, 1, FRAME_BYTES, FRAME_BYTES);
        UnsafeProjection unsafe = UnsafeProjection.create(types);
        try {
            Iterator each = (Iterator) rows;
            while (each.hasNext()) {
                Object row = each.next();
                writer.add(0, row instanceof UnsafeRow ? (UnsafeRow) row : unsafe.apply((InternalRow) row));
            }
            writer.finish();
        } catch (IOException e) {
            throw new java.io.UncheckedIOException(e);
        } catch (InterruptedException e) {
            throw new org.apache.spark.TaskKilledException("interrupted");
        }
        return frames.all;
    }

    private static final class Collector extends AbstractFunction2 {
        private List frames = null;

        public Object apply(Object index, Object made) {
            frames = (List) made;
            return BoxedUnit.UNIT;
        }
    }

    private static final class Frames implements ExchangeSink {
        private final ArrayList all = new ArrayList();

        public boolean put(int bucket, Frame frame) {
            all.add(frame.copy());
            return true;
        }

        public void finish(long[] rows) {}

        public void abort(Throwable why) {}

        public long bytes() {
            return 0L;
        }
    }
}
