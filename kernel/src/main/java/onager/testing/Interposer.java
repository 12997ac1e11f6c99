package onager.testing;

import onager.rows.ExchangeSink;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.SparkPlan;
import scala.collection.Iterator;

/** Stands between a pipeline's tasks and what they read and write: tests plant faults through it. */
public interface Interposer {
    /** Return what the task uses instead of *made*, or *made*. */
    ExchangeSink sink(ExchangeSink made, int stage, int partition);

    /** Return the rows that the task gives instead of *made*, or *made*. */
    Iterator<InternalRow> rows(Iterator<InternalRow> made, int stage, int partition);

    /** Return the leaf that the task reads instead of *made*, or *made*. */
    SparkPlan leaf(SparkPlan made, int stage, int partition);
}
