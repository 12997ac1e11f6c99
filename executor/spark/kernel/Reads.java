package onager.kernel;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.Dependency;
import org.apache.spark.NarrowDependency;
import org.apache.spark.rdd.RDD;
import scala.collection.immutable.Seq;

/** Which buckets of which streamed inputs a partition of a stage reads, as the lineage of its RDD says. */
final class Reads {
    private Reads() {}

    /** Return, by input as Integer, the list of buckets. */
    static Map of(RDD rdd, int partition) {
        Map found = new TreeMap();
        walk(rdd, partition, found);
        return found;
    }

    private static void walk(RDD rdd, int partition, Map found) {
        if (rdd instanceof ExchangeRDD) {
            note(((ExchangeRDD) rdd).input.streamed(), partition, found);
        } else if (rdd instanceof RangeRDD) {
            note(((RangeRDD) rdd).input.streamed(), SortedInput.ROWS, found); // whichever range
        }
        Seq dependencies = rdd.dependencies();
        for (int i = 0; i < dependencies.size(); i++) {
            Dependency dependency = (Dependency) dependencies.apply(i);
            if (!(dependency instanceof NarrowDependency)) {
                throw new IllegalStateException("there is a shuffle of Spark's own within the stage: " + rdd.toDebugString());
            }
            Seq parents = ((NarrowDependency) dependency).getParents(partition);
            for (int p = 0; p < parents.size(); p++) {
                walk(dependency.rdd(), ((Integer) parents.apply(p)).intValue(), found);
            }
        }
    }

    private static void note(int input, int bucket, Map found) {
        if (input < 0) {
            return;
        }
        List buckets = (List) found.get(Integer.valueOf(input));
        if (buckets == null) {
            buckets = new ArrayList();
            found.put(Integer.valueOf(input), buckets);
        }
        buckets.add(Integer.valueOf(bucket));
    }
}
