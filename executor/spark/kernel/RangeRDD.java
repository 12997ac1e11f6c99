package onager.kernel;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;
import org.apache.spark.rdd.RDD;
import org.apache.spark.rdd.ShuffledRDDPartition;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.SparkPlan;
import scala.collection.immutable.Seq;
import scala.reflect.ClassTag$;

/** Sorted runs by ranges of keys: partition i is range i of all runs, merged, or one run after the other. */
public final class RangeRDD extends RDD {
    /** Runs that a task merges at most: it holds frames of each. */
    static final int MOST_MERGED = 64;

    final SortedInput input;
    private final Ranges ranges;
    private final int fields;
    private final boolean merges;

    private RangeRDD(SparkContext sc, SortedInput input, Ranges ranges, int fields, boolean merges) {
        super(sc, (Seq) scala.collection.immutable.Nil$.MODULE$, ClassTag$.MODULE$.apply(InternalRow.class));
        this.input = input;
        this.ranges = ranges;
        this.fields = fields;
        this.merges = merges;
    }

    /**
     * Return *partitions* ranges of a stage's sorted runs as a leaf with the attributes *output*, called *name*; *samples* are the keys of
     * all runs, which are read now. *merges*: each partition is in *order*.
     */
    static SparkPlan scan(SparkContext sc, SortedInput input, ExchangeSource samples, KeyOrder order, int partitions, Seq output,
            boolean merges, String name) {
        List keys;
        try {
            keys = Samples.read(samples, order.fields());
        } catch (InterruptedException e) {
            throw new TaskKilledException("interrupted");
        } catch (IOException e) {
            throw new java.io.UncheckedIOException(e);
        } finally {
            samples.close();
        }
        Ranges ranges = new Ranges(order, partitions, input.runs(), keys);
        return new ExchangeScanExec(output, new RangeRDD(sc, input, ranges, output.size(), merges), name);
    }

    public Partition[] getPartitions() {
        Partition[] all = new Partition[ranges.count];
        for (int i = 0; i < all.length; i++) {
            all[i] = new ShuffledRDDPartition(i);
        }
        return all;
    }

    public scala.collection.Iterator compute(Partition split, TaskContext context) {
        int range = split.index();
        List runs = new ArrayList();
        for (int run = 0; run < input.runs(); run++) {
            if (ranges.isIn(run, range)) {
                ExchangeSource source = input.open(run, ranges.first(run, range), ranges.end(run, range), context);
                runs.add(new RunRows(source, ranges, range, fields, context));
            }
        }
        return new MergedRows(runs, merges ? ranges.order.ofRows() : null);
    }
}
