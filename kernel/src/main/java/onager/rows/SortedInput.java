package onager.rows;

import java.io.Serializable;
import org.apache.spark.TaskContext;

/** The output of a stage whose tasks each wrote a sorted run, wherever it comes from: small and serialisable. */
public interface SortedInput extends Serializable {
    /** The bucket of a run's rows. */
    int ROWS = 0;
    /** The bucket of the keys that were sampled of a run. */
    int SAMPLES = 1;
    int BUCKETS = 2;

    int runs();

    /** As for `ExchangeInput`. */
    int streamed();

    /** Open the rows of *run* from place *from* up to, and without, place *to*; there may be more around them. */
    ExchangeSource open(int run, long from, long to, TaskContext context);
}
