package onager.bind;

import java.util.List;
import onager.values.Seqs;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.types.DataType;
import scala.collection.immutable.Seq;

/**
 * A bound stage: its executable plan, and the RDD of its partitions.
 *
 * @param broadcasts the shared broadcasts that it reads
 * @param operators its operators, with the metrics that its tasks report; null: they report none
 * @param codegenMs how long this JVM generated and compiled code meanwhile
 */
public record Bound(SparkSession session, SparkPlan plan, RDD<InternalRow> rdd, List<Broadcasts.Shared> broadcasts,
        BoundPlan operators, long codegenMs) {
    public Seq<Attribute> output() {
        return plan.output();
    }

    public DataType[] types() {
        return Seqs.list(plan.output()).stream().map(Attribute::dataType).toArray(DataType[]::new);
    }

    public int partitions() {
        return rdd.getNumPartitions();
    }

    /** Return the bound plan as Spark prints it. */
    public String text() {
        return plan.treeString();
    }
}
