package onager.sort;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import onager.rows.CountsRows;
import onager.rows.ExchangeScanExec;
import onager.rows.ExchangeSource;
import onager.rows.SortedInput;
import onager.spark43.RowRDD;
import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.metric.SQLMetrics;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/** Sorted runs divided into ranges of keys: partition i is range i of all runs, merged or concatenated. */
@SuppressWarnings("serial")
public final class RangeRDD extends RowRDD implements CountsRows {
    /** The maximum number of runs that a task merges, since it holds frames of each. */
    public static final int MAX_MERGED = 64;

    private final SortedInput input;
    private final Ranges ranges;
    private final int fields;
    private final boolean merges;
    private final SQLMetric rows;

    private RangeRDD(SparkContext sc, SortedInput input, Ranges ranges, int fields, boolean merges) {
        super(sc);
        this.input = input;
        this.ranges = ranges;
        this.fields = fields;
        this.merges = merges;
        this.rows = SQLMetrics.createMetric(sc, "number of output rows");
    }

    public SortedInput input() {
        return input;
    }

    /**
     * Return *partitions* ranges of a stage's sorted runs as a leaf with the attributes *output*, called *name*; *samples* are the sampled
     * keys of all runs, which are read now. *merges*: each partition is sorted by *order*.
     */
    public static SparkPlan scan(SparkContext sc, SortedInput input, ExchangeSource samples, KeyOrder order, int partitions,
            Seq<Attribute> output, boolean merges, String name) {
        try {
            var ranges = new Ranges(order, partitions, input.runs(), Samples.read(samples, order.fields()));
            return new ExchangeScanExec(output, new RangeRDD(sc, input, ranges, output.size(), merges), name);
        } catch (InterruptedException e) {
            throw new TaskKilledException("interrupted");
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        } finally {
            samples.close();
        }
    }

    @Override
    public SQLMetric rows() {
        return rows;
    }

    @Override
    public Partition[] getPartitions() {
        return numbered(ranges.count);
    }

    @Override
    public Iterator<InternalRow> compute(Partition split, TaskContext context) {
        int range = split.index();
        var runs = new ArrayList<RunRows>();
        for (int run = 0; run < input.runs(); run++) {
            if (ranges.isIn(run, range)) {
                ExchangeSource source = input.open(run, ranges.first(run, range), ranges.end(run, range), context);
                runs.add(new RunRows(source, ranges, range, fields, rows, context));
            }
        }
        return new MergedRows(runs, merges ? ranges.order.ofRows() : null);
    }
}
