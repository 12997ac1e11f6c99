package onager.kernel;

import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.catalyst.plans.physical.UnknownPartitioning;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.SparkPlan;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/**
 * The output of another stage as a leaf of a plan. Its rows are UnsafeRows already and go on as they are, where a scan of an RDD
 * would put every row together anew.
 */
public final class ExchangeScanExec extends SparkPlan {
    private final Seq output;
    private final RDD rdd;
    private final String name;

    public ExchangeScanExec(Seq output, RDD rdd, String name) {
        this.output = output;
        this.rdd = rdd;
        this.name = name;
    }

    public Seq output() {
        return output;
    }

    public RDD doExecute() {
        return rdd;
    }

    public Partitioning outputPartitioning() {
        return new UnknownPartitioning(rdd.getNumPartitions());
    }

    public String nodeName() {
        return "Scan " + name;
    }

    public Seq children() {
        return PlanTools.noItems();
    }

    public TreeNode withNewChildrenInternal(IndexedSeq children) {
        return this;
    }

    public int productArity() {
        return 3;
    }

    public Object productElement(int n) {
        return n == 0 ? (Object) output : n == 1 ? (Object) rdd : name;
    }

    public boolean canEqual(Object other) {
        return other instanceof ExchangeScanExec;
    }

    public boolean equals(Object other) {
        return this == other;
    }

    public int hashCode() {
        return System.identityHashCode(this);
    }
}
