package onager.rows;

import onager.spark43.Nodes;
import onager.spark43.OwnExec;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import scala.collection.immutable.Seq;

/**
 * The output of another stage as a leaf of a plan. Its rows are already UnsafeRows and are passed on unchanged, whereas Spark's scan of an
 * RDD would convert each one.
 */
@SuppressWarnings("serial")
public final class ExchangeScanExec extends OwnExec {
    private final Seq<Attribute> output;
    private final RDD<InternalRow> rdd;
    private final String name;

    public ExchangeScanExec(Seq<Attribute> output, RDD<InternalRow> rdd, String name) {
        super(null);
        this.output = output;
        this.rdd = rdd;
        this.name = name;
    }

    @Override
    public Seq<Attribute> output() {
        return output;
    }

    @Override
    public RDD<InternalRow> doExecute() {
        return rdd;
    }

    @Override
    public Partitioning outputPartitioning() {
        return Nodes.unknown(rdd.getNumPartitions());
    }

    @Override
    protected Object[] parts() {
        return new Object[] {output, rdd, name};
    }

    @Override
    public String nodeName() {
        return "Scan " + name;
    }
}
