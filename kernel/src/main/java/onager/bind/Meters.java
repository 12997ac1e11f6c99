package onager.bind;

import java.io.ByteArrayOutputStream;
import java.io.Serializable;
import java.util.Arrays;
import onager.values.Seqs;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.util.AccumulatorV2;

/**
 * The metrics that tasks of a bound plan report: it travels to every task, so it is no more than their ids in this Spark.
 *
 * @param ids ascending accumulator ids
 * @param keys for each id twice the metric's index in the bound plan, and one more if it is merged by maximum
 */
@SuppressWarnings("serial")
public record Meters(long[] ids, int[] keys) implements Serializable {
    /** The first byte of what tasks report: how the rest is written. */
    private static final int FORMAT = 1;

    /** Return what the running task has measured, zeros left out: the format, then a key and a value for each metric, as varints. */
    public byte[] read(TaskContext context) {
        return read(Seqs.each(context.taskMetrics().accumulators().iterator()));
    }

    byte[] read(Iterable<? extends AccumulatorV2<?, ?>> accumulators) {
        var out = new ByteArrayOutputStream(64);
        out.write(FORMAT);
        for (AccumulatorV2<?, ?> found : accumulators) {
            if (found instanceof SQLMetric metric && metric._value() > 0) {
                int at = Arrays.binarySearch(ids, metric.id());
                if (at >= 0) {
                    write(out, keys[at]);
                    write(out, metric._value());
                }
            }
        }
        return out.toByteArray();
    }

    private static void write(ByteArrayOutputStream out, long number) {
        long left = number;
        while (left >= 0x80) {
            out.write((int) (left & 0x7f | 0x80));
            left >>>= 7;
        }
        out.write((int) left);
    }
}
