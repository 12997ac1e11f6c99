package onager.rows;

import java.io.Serializable;
import org.apache.spark.TaskContext;

/** The output of a stage as the tasks of another stage read it; serialised with their plan. */
public interface ExchangeInput extends Serializable {
    /** Return the number of partitions. */
    int partitions();

    /** Return its index in the stage's inputs if producers must know which of its partitions are read; else -1. */
    int streamed();

    /** Return whether it is one partition, and so small that a Spark job would take longer than to read it. */
    default boolean isSmall() {
        return false;
    }

    /** Return the source of *partition* for a task, or without one where *context* is null; opening it is free, and asks no producer. */
    ExchangeSource open(int partition, TaskContext context);
}
