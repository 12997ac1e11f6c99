package onager.spark43;

import java.util.Arrays;
import java.util.concurrent.atomic.AtomicReference;
import onager.values.Seqs;
import org.apache.spark.FutureAction;
import org.apache.spark.MapOutputStatistics;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeMap$;
import org.apache.spark.sql.catalyst.plans.logical.Statistics;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.execution.ShufflePartitionSpec;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeLike;
import org.apache.spark.sql.execution.exchange.ShuffleOrigin;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.concurrent.Future;
import scala.math.BigInt;

/** What a stage has given, or will give, as Spark's rules for measured plans look at it: statistics, but no rows. */
@SuppressWarnings("serial") // it is never sent
final class StageExchange extends OwnExec implements ShuffleExchangeLike {
    private final Seq<Attribute> output;
    private final Partitioning partitioning;
    private final ShuffleOrigin origin;
    private final long bytes;
    private final long rows;

    /** *rows* below 0: any number. */
    StageExchange(Seq<Attribute> output, Partitioning partitioning, ShuffleOrigin origin, long bytes, long rows) {
        super(null);
        this.output = output;
        this.partitioning = partitioning;
        this.origin = origin;
        this.bytes = bytes;
        this.rows = rows;
    }

    /** Return the sizes of its buckets, as if all were alike. */
    MapOutputStatistics sizes() {
        var each = new long[Math.max(1, numPartitions())];
        Arrays.fill(each, (bytes + each.length - 1) / each.length);
        return new MapOutputStatistics(-1, each);
    }

    @Override
    public Future<MapOutputStatistics> mapOutputStatisticsFuture() {
        return scala.concurrent.Future$.MODULE$.successful(sizes());
    }

    @Override
    public Statistics runtimeStatistics() {
        Option<BigInt> count = rows < 0 ? Option.empty() : Option.apply(BigInt.apply(rows));
        return new Statistics(BigInt.apply(bytes), count, AttributeMap$.MODULE$.empty(), true);
    }

    @Override
    public int numMappers() {
        return 1;
    }

    @Override
    public int numPartitions() {
        return partitioning.numPartitions();
    }

    @Override
    public Option<Object> advisoryPartitionSize() {
        return Option.empty();
    }

    @Override
    public ShuffleOrigin shuffleOrigin() {
        return origin;
    }

    @Override
    public int shuffleId() {
        return -1;
    }

    @Override
    public RDD<?> getShuffleRDD(ShufflePartitionSpec[] specs) {
        throw new UnsupportedOperationException("its rows are read from Onager's exchange");
    }

    @Override
    public RDD<InternalRow> doExecute() {
        throw new UnsupportedOperationException("its rows are read from Onager's exchange");
    }

    @Override
    public AtomicReference<Option<FutureAction<MapOutputStatistics>>> futureAction() {
        return new AtomicReference<>(Option.empty());
    }

    // Fields that Scala's compiler would make of the trait's: of a job that is never submitted.

    @Override
    public void org$apache$spark$sql$execution$exchange$ShuffleExchangeLike$_setter_$futureAction_$eq(
            AtomicReference<Option<FutureAction<MapOutputStatistics>>> action) {}

    @Override
    public boolean org$apache$spark$sql$execution$exchange$ShuffleExchangeLike$$isCancelled() {
        return false;
    }

    @Override
    public void org$apache$spark$sql$execution$exchange$ShuffleExchangeLike$$isCancelled_$eq(boolean cancelled) {}

    @Override
    public Seq<Attribute> output() {
        return output;
    }

    @Override
    public Partitioning outputPartitioning() {
        return partitioning;
    }

    @Override
    protected Object[] parts() {
        return new Object[] {partitioning, Seqs.list(output).size()};
    }

    @Override
    public String nodeName() {
        return "Measured exchange";
    }
}
