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

/** Which buckets of which streamed inputs a partition of a stage reads, as the lineage of its RDD says. */
final class Reads {
    private Reads() {}

    /** Return the buckets by input; an IllegalStateException where a shuffle within the stage hides them. */
    static Map<Integer, List<Integer>> of(RDD<?> rdd, int partition) {
        var found = new TreeMap<Integer, List<Integer>>();
        walk(rdd, partition, found);
        return found;
    }

    private static void walk(RDD<?> rdd, int partition, Map<Integer, List<Integer>> found) {
        if (rdd instanceof ExchangeRDD exchange) {
            note(exchange.input().streamed(), partition, found);
        } else if (rdd instanceof RangeRDD ranges) {
            note(ranges.input().streamed(), SortedInput.ROWS, found); // whichever range
        }
        for (var dependency : Seqs.list(rdd.dependencies())) {
            if (!(dependency instanceof NarrowDependency<?> narrow)) {
                throw new IllegalStateException("there is a shuffle of Spark's own within the stage: " + rdd.toDebugString());
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
