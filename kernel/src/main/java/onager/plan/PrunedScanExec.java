package onager.plan;

import java.util.Objects;
import onager.spark43.Expressions;
import onager.spark43.Nodes;
import onager.spark43.OwnExec;
import onager.values.Seqs;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.Option;
import scala.collection.immutable.Seq;

/**
 * A scan of files without the directories that runtime filters prune. The filters' subqueries have run when a stage is bound, so all its
 * tasks, wherever they run, prune the same directories, and divide the remaining files as if only these had been planned. The number of
 * tasks stays as planned; some may have no files.
 */
@SuppressWarnings("serial")
public final class PrunedScanExec extends OwnExec {
    private final Seq<Expression> filters;
    private final int tasks;

    /** *tasks*: the planned number of partitions. Spark calls this constructor by reflection. */
    public PrunedScanExec(Seq<Expression> filters, SparkPlan scan, int tasks) {
        super(scan);
        this.filters = filters;
        this.tasks = tasks;
    }

    /** Returns the scan of the remaining directories, after the subqueries have run. */
    private FileSourceScanExec pruned() {
        var files = (FileSourceScanExec) child;
        StructType columns = files.relation().partitionSchema();
        var predicates = Seqs.list(filters).stream().map(filter -> predicate(filter, columns)).filter(Objects::nonNull).toList();
        var all = Seqs.list(files.relation().location().listFiles(Seqs.seq(), Seqs.seq()));
        return Leaves.over(files, all.stream()
                .filter(directory -> predicates.stream().allMatch(each -> each.eval(directory.values())))
                .toList());
    }

    /** Returns null if the filter needs more than a directory's partition values. */
    static BasePredicate predicate(Expression filter, StructType columns) {
        for (var attribute : Seqs.each(filter.references().iterator())) {
            if (!columns.getFieldIndex(attribute.name()).isDefined()) {
                return null;
            }
        }
        return Expressions.predicate(filter.transform(Seqs.change(AttributeReference.class, attribute -> {
            int index = columns.fieldIndex(attribute.name());
            return Expressions.column(index, columns.apply(index).dataType(), true);
        })));
    }

    /** Returns *rows* in the planned number of partitions. */
    private <T> RDD<T> inTasks(RDD<T> rows, Class<T> of) {
        int there = rows.getNumPartitions();
        if (there > tasks) {
            return rows.coalesce(tasks, false, Option.empty(), null);
        }
        if (there == tasks) {
            return rows;
        }
        RDD<T> none = sparkContext().parallelize(Seqs.<T>seq(), tasks - there, Seqs.tag(of));
        return sparkContext().union(Seqs.seq(rows, none), Seqs.tag(of));
    }

    @Override
    public RDD<InternalRow> doExecute() {
        return inTasks(pruned().execute(), InternalRow.class);
    }

    @Override
    public RDD<ColumnarBatch> doExecuteColumnar() {
        return inTasks(pruned().executeColumnar(), ColumnarBatch.class);
    }

    @Override
    public boolean supportsColumnar() {
        return child.supportsColumnar();
    }

    @Override
    public Partitioning outputPartitioning() {
        return Nodes.unknown(tasks);
    }

    @Override
    protected SparkPlan over(SparkPlan other) {
        return new PrunedScanExec(filters, other, tasks);
    }

    @Override
    protected Object[] parts() {
        return new Object[] {filters, child, tasks};
    }

    @Override
    public String nodeName() {
        return "Pruned";
    }
}
