package onager.bind;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import onager.rows.ExchangeRDD;
import onager.rows.SortedInput;
import onager.sort.RangeRDD;
import onager.values.Seqs;
import org.apache.spark.NarrowDependency;
import org.apache.spark.rdd.RDD;

/** Finds, in the lineage of a stage's RDD, which buckets of which streamed inputs a partition reads. */
final class Reads {
    private Reads() {}

    /** Return the buckets by input; throws an IllegalStateException if a shuffle within the stage hides them. */
    static Map<Integer, List<Integer>> of(RDD<?> rdd, int partition) {
        var found = new TreeMap<Integer, List<Integer>>();
        walk(rdd, partition, found);
        return found;
    }

    private static void walk(RDD<?> rdd, int partition, Map<Integer, List<Integer>> found) {
        if (rdd instanceof ExchangeRDD exchange) {
            note(exchange.input().streamed(), partition, found);
        } else if (rdd instanceof RangeRDD ranges) {
            note(ranges.input().streamed(), SortedInput.ROWS, found); // for any range
        }
        for (var dependency : Seqs.list(rdd.dependencies())) {
            if (!(dependency instanceof NarrowDependency<?> narrow)) {
                throw new IllegalStateException("the stage contains a shuffle of Spark: " + rdd.toDebugString());
            }
            for (Object parent : Seqs.list(narrow.getParents(partition))) {
                walk(dependency.rdd(), (Integer) parent, found);
            }
        }
    }

    private static void note(int input, int bucket, Map<Integer, List<Integer>> found) {
        if (input >= 0) {
            found.computeIfAbsent(input, any -> new ArrayList<>()).add(bucket);
        }
    }
}
