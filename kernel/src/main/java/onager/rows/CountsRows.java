package onager.rows;

import org.apache.spark.sql.execution.metric.SQLMetric;

/** An RDD of the output of another stage, which counts the rows that tasks read. */
public interface CountsRows {
    SQLMetric rows();
}
