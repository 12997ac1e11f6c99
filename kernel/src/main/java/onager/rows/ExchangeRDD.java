package onager.rows;

import java.util.ArrayList;
import java.util.List;
import java.util.NoSuchElementException;
import onager.spark43.RowRDD;
import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.metric.SQLMetrics;
import org.apache.spark.util.TaskCompletionListener;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/**
 * The output of a stage as rows, from any kind of exchange. Like Spark's shuffle reader, it reuses one row object.
 */
@SuppressWarnings("serial")
public final class ExchangeRDD extends RowRDD implements CountsRows {
    private final ExchangeInput input;
    private final int fields;
    private final SQLMetric rows;

    public ExchangeRDD(SparkContext sc, ExchangeInput input, int fields) {
        super(sc);
        this.input = input;
        this.fields = fields;
        this.rows = SQLMetrics.createMetric(sc, "number of output rows");
    }

    /** All rows of each frame that tasks took. */
    @Override
    public SQLMetric rows() {
        return rows;
    }

    public ExchangeInput input() {
        return input;
    }

    /** Return all rows, which are few (`ExchangeInput.isSmall`), each an object of its own; read on this thread, by no Spark job. */
    List<InternalRow> read() {
        var found = new ArrayList<InternalRow>();
        var source = input.open(0, null);
        try {
            var all = new Rows(source, fields, rows, null);
            while (all.hasNext()) {
                found.add(all.next().copy());
            }
        } finally {
            source.close();
        }
        return found;
    }

    @Override
    public Partition[] getPartitions() {
        return numbered(input.partitions());
    }

    @Override
    public Iterator<InternalRow> compute(Partition split, TaskContext context) {
        return new Rows(input.open(split.index(), context), fields, rows, context);
    }

    private static final class Rows extends AbstractIterator<InternalRow> {
        private final ExchangeSource source;
        private final TaskContext context;
        private final UnsafeRow row;
        private final SQLMetric rows;
        private final FrameCursor at = new FrameCursor();

        Rows(ExchangeSource source, int fields, SQLMetric rows, TaskContext context) {
            this.source = source;
            this.rows = rows;
            this.context = context;
            this.row = new UnsafeRow(fields);
            if (context != null) {
                context.addTaskCompletionListener((TaskCompletionListener) ended -> source.close());
            }
        }

        @Override
        public boolean hasNext() {
            return at.hasNext() || advance();
        }

        @Override
        public InternalRow next() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            at.next(row);
            return row;
        }

        /** Take the next frame. The last row returned may be in the previous frame, which stays valid during hasNext. */
        private boolean advance() {
            while (!at.hasNext()) {
                Frame next = ExchangeSource.next(source, context);
                if (next == null) {
                    source.close();
                    return false;
                }
                at.start(next);
                rows.add(next.rows());
            }
            return true;
        }
    }
}
