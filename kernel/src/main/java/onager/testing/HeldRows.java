package onager.testing;

import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import onager.bind.Bound;
import onager.rows.ExchangeRDD;
import onager.rows.ExchangeSink;
import onager.rows.Frame;
import onager.rows.FrameWriter;
import onager.rows.HeldInput;
import onager.values.Seqs;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.DataType;
import scala.collection.Iterator;
import scala.runtime.AbstractFunction2;
import scala.runtime.BoxedUnit;

/** Lets a job of Spark's make the rows of one partition, and holds them: for plans that shuffle, which no task does alone. */
@SuppressWarnings("serial")
final class HeldRows extends AbstractFunction2<TaskContext, Iterator<InternalRow>, Frame[]> implements Serializable {
    private static final int FRAME_BYTES = 1 << 20;

    private final DataType[] types;

    private HeldRows(DataType[] types) {
        this.types = types;
    }

    /** Return *bound*'s rows as an RDD of as many partitions, of which *partition* alone has its rows. */
    static RDD<InternalRow> of(SparkContext sc, Bound bound, int partition) {
        var frames = new ArrayList<Frame>();
        sc.runJob(bound.rdd(), new HeldRows(bound.types()), Seqs.<Object>seq(partition), (index, made) -> {
            frames.addAll(java.util.List.of(made));
            return BoxedUnit.UNIT;
        }, Seqs.tag(Frame[].class));
        return new ExchangeRDD(sc, HeldInput.only(frames, partition, bound.partitions()), bound.types().length);
    }

    @Override
    public Frame[] apply(TaskContext context, Iterator<InternalRow> rows) {
        var frames = new Frames();
        var writer = new FrameWriter(frames, 1, FRAME_BYTES, FRAME_BYTES);
        UnsafeProjection unsafe = UnsafeProjection.create(types);
        try {
            for (InternalRow row : Seqs.each(rows)) {
                writer.add(0, row instanceof UnsafeRow given ? given : unsafe.apply(row));
            }
            writer.finish();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        } catch (InterruptedException e) {
            throw new TaskKilledException("interrupted");
        }
        return frames.all.toArray(new Frame[0]);
    }

    private static final class Frames implements ExchangeSink {
        private final ArrayList<Frame> all = new ArrayList<>();

        @Override
        public boolean put(int bucket, Frame frame) {
            return all.add(frame.copy());
        }

        @Override
        public void finish(long[] rows) {}

        @Override
        public void abort(Throwable why) {}

        @Override
        public long bytes() {
            return 0L;
        }
    }
}
