package onager.rows;

import java.io.Serializable;
import org.apache.spark.TaskContext;

/** The output of a stage as another one's tasks read it; travels with their plan. */
public interface ExchangeInput extends Serializable {
    /** How many partitions the input has. */
    int partitions();

    /** Return which of its stage's inputs it is, where it matters to others which partitions of it are read; else -1. */
    int streamed();

    /** Return what a task reads of *partition*; opening costs nothing and asks nothing of anybody. */
    ExchangeSource open(int partition, TaskContext context);
}
