package onager.rows;

import java.io.Serializable;
import org.apache.spark.TaskContext;

/** The output of a stage whose tasks each wrote a sorted run, in files or streams: small and serialisable. */
public interface SortedInput extends Serializable {
    /** The bucket of a run's rows. */
    int ROWS = 0;
    /** The bucket of a run's sampled keys. */
    int SAMPLES = 1;
    int BUCKETS = 2;

    int runs();

    /** See `ExchangeInput.streamed`. */
    int streamed();

    /** Open the rows of *run* from position *from* to *to* (exclusive); neighbouring rows may come with them. */
    ExchangeSource open(int run, long from, long to, TaskContext context);
}
