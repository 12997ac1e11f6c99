package onager.rows;

import java.util.List;
import onager.spark43.Nodes;
import onager.spark43.OwnExec;
import onager.values.Seqs;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.execution.metric.SQLMetric;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.collection.immutable.Map;
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

    /** Its parameters are its `parts`: Spark copies it by them. */
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

    /** Return the rows if they are few: for a broadcast or a subquery, which then needs no Spark job and no slot; else null. */
    private List<InternalRow> few() {
        return rdd instanceof ExchangeRDD exchange && exchange.input().isSmall() ? exchange.read() : null;
    }

    @Override
    public Tuple2<Object, Iterator<InternalRow>> executeCollectIterator() {
        List<InternalRow> few = few();
        return few == null ? super.executeCollectIterator() : new Tuple2<>((long) few.size(), Seqs.<InternalRow>seq(few).iterator());
    }

    @Override
    public InternalRow[] executeCollect() {
        List<InternalRow> few = few();
        return few == null ? super.executeCollect() : few.toArray(InternalRow[]::new);
    }

    @Override
    public InternalRow[] executeTake(int most) {
        List<InternalRow> few = few();
        return few == null ? super.executeTake(most) : few.stream().limit(most).toArray(InternalRow[]::new);
    }

    @Override
    public Partitioning outputPartitioning() {
        return Nodes.unknown(rdd.getNumPartitions());
    }

    @Override
    public Map<String, SQLMetric> metrics() {
        return rdd instanceof CountsRows counted ? Seqs.map(java.util.Map.of("numOutputRows", counted.rows())) : super.metrics();
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
