package onager.rows;

import java.io.Serializable;
import org.apache.spark.TaskContext;

/** The output of a stage as the tasks of another stage read it; serialised with their plan. */
public interface ExchangeInput extends Serializable {
    /** Return the number of partitions. */
    int partitions();

    /** Return its index in the stage's inputs if producers must know which of its partitions are read; else -1. */
    int streamed();

    /** Return the source of *partition* for a task; opening it is free, and asks no producer. */
    ExchangeSource open(int partition, TaskContext context);
}
