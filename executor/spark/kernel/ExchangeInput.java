package onager.kernel;

import java.io.Serializable;
import org.apache.spark.TaskContext;

/** The output of a stage as another one's tasks read it; travels with their plan. */
public interface ExchangeInput extends Serializable {
    /** How many partitions the input has. */
    int partitions();

    /** Return what a task reads of *partition*; opening costs nothing and asks nothing of anybody. */
    ExchangeSource open(int partition, TaskContext context);
}
