package onager.sort;

import onager.rows.ExchangeSource;
import onager.rows.Frame;
import onager.rows.FrameCursor;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.util.TaskCompletionListener;

/** Iterates over the rows of one sorted run that are in a range. The previous row stays valid while the next one is sought. */
final class RunRows {
    private final ExchangeSource source;
    private final KeyOrder order;
    private final UnsafeRow over;
    private final UnsafeRow upTo;
    private final UnsafeProjection key;
    private final SQLMetric rows;
    private final TaskContext context;
    private final FrameCursor at = new FrameCursor();
    private UnsafeRow row;
    private UnsafeRow before;
    /** Whether rows of the current frame may be below the range, or above it. */
    private boolean mayBeBelow;
    private boolean mayBeAbove = false;

    RunRows(ExchangeSource source, Ranges ranges, int range, int fields, SQLMetric rows, TaskContext context) {
        this.source = source;
        this.order = ranges.order;
        this.over = ranges.over(range);
        this.upTo = ranges.upTo(range);
        this.key = order.projection();
        this.rows = rows;
        this.context = context;
        this.row = new UnsafeRow(fields);
        this.before = new UnsafeRow(fields);
        this.mayBeBelow = over != null;
        context.addTaskCompletionListener((TaskCompletionListener) ended -> source.close());
    }

    /** The current row, after `advance` returned true. */
    UnsafeRow row() {
        return row;
    }

    /** Go to the next row; false at the end of the range. */
    boolean advance() {
        UnsafeRow swap = before;
        before = row;
        row = swap;
        while (at.hasNext() || nextFrame()) {
            at.next(row);
            if (mayBeBelow && order.compare(key.apply(row), over) <= 0) {
                continue;
            }
            mayBeBelow = false; // rows are sorted
            if (mayBeAbove && order.compare(key.apply(row), upTo) > 0) {
                break;
            }
            rows.add(1L);
            return true;
        }
        source.close();
        return false;
    }

    private boolean nextFrame() {
        Frame frame = ExchangeSource.next(source, context);
        if (frame == null) {
            return false;
        }
        at.start(frame);
        if (upTo != null) {
            at.last(row);
            mayBeAbove = order.compare(key.apply(row), upTo) > 0;
        }
        return true;
    }
}
