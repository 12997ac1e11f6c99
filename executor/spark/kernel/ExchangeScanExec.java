package onager.kernel;

import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.catalyst.plans.physical.UnknownPartitioning;
import org.apache.spark.sql.execution.SparkPlan;
import scala.collection.immutable.Seq;

/**
 * The output of another stage as a leaf of a plan. Its rows are UnsafeRows already and go on as they are, where a scan of an RDD
 * would put every row together anew.
 */
public final class ExchangeScanExec extends OwnExec {
    private final Seq output;
    private final RDD rdd;
    private final String name;

    public ExchangeScanExec(Seq output, RDD rdd, String name) {
        super(null);
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

    SparkPlan over(SparkPlan other) {
        return this;
    }

    Object[] parts() {
        return new Object[] {output, rdd, name};
    }

    public String nodeName() {
        return "Scan " + name;
    }
}
