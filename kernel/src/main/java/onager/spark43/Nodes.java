package onager.spark43;

import java.util.List;
import onager.values.Seqs;
import org.apache.spark.SparkContext;
import org.apache.spark.rdd.EmptyRDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.optimizer.BuildLeft$;
import org.apache.spark.sql.catalyst.optimizer.BuildRight$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Range;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.catalyst.plans.physical.UnknownPartitioning;
import org.apache.spark.sql.execution.CoalesceExec;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.LocalLimitExec;
import org.apache.spark.sql.execution.LocalTableScanExec;
import org.apache.spark.sql.execution.OneRowRelationExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.RDDScanExec;
import org.apache.spark.sql.execution.RangeExec;
import org.apache.spark.sql.execution.SortExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.exchange.BroadcastExchangeExec;
import org.apache.spark.sql.execution.exchange.ReusedExchangeExec;
import org.apache.spark.sql.execution.joins.BroadcastHashJoinExec;
import org.apache.spark.sql.execution.joins.ShuffledHashJoinExec;
import org.apache.spark.sql.execution.joins.SortMergeJoinExec;
import scala.Option;
import scala.collection.immutable.Seq;

/** Makes nodes of plans, by constructors whose parameters change between minor versions of Spark. */
public final class Nodes {
    private Nodes() {}

    public static Partitioning unknown(int partitions) {
        return new UnknownPartitioning(partitions);
    }

    /** Return a placeholder: a leaf without rows for an input of *columns*. */
    public static SparkPlan placeholder(SparkContext sc, Seq<Attribute> columns, String name) {
        var none = new EmptyRDD<InternalRow>(sc, Seqs.tag(InternalRow.class));
        return new RDDScanExec(columns, none, name, unknown(0), Seqs.seq(), Option.empty());
    }

    /** Return *child* coalesced into one partition. */
    public static SparkPlan inOneTask(SparkPlan child) {
        return new CoalesceExec(1, child);
    }

    public static SparkPlan limit(int rows, SparkPlan child) {
        return new LocalLimitExec(rows, child);
    }

    /** Return *child* with each partition sorted by *order*. */
    public static SparkPlan sorted(Seq<SortOrder> order, SparkPlan child) {
        return new SortExec(order, false, child, 0);
    }

    public static SparkPlan project(Seq<NamedExpression> columns, SparkPlan child) {
        return new ProjectExec(columns, child);
    }

    public static LogicalPlan project(Seq<NamedExpression> columns, LogicalPlan child) {
        return new Project(columns, child);
    }

    public static SparkPlan filter(Expression condition, SparkPlan child) {
        return new FilterExec(condition, child);
    }

    /** Return a reuse of *exchange*, which is prepared, with the attributes *output*. */
    public static SparkPlan reused(Seq<Attribute> output, BroadcastExchangeExec exchange) {
        return new ReusedExchangeExec(output, exchange);
    }

    /** Return *join* as a shuffled hash join over the given sides. */
    public static SparkPlan hashJoin(SortMergeJoinExec join, SparkPlan left, SparkPlan right, boolean buildsRight) {
        return new ShuffledHashJoinExec(join.leftKeys(), join.rightKeys(), join.joinType(), buildsRight ? BuildRight$.MODULE$ : BuildLeft$.MODULE$,
                join.condition(), left, right, join.isSkewJoin());
    }

    /** Return *join* as a sort-merge join over the given sides. */
    public static SparkPlan sortMergeJoin(BroadcastHashJoinExec join, SparkPlan left, SparkPlan right) {
        return new SortMergeJoinExec(join.leftKeys(), join.rightKeys(), join.joinType(), join.condition(), byKeys(left, join.leftKeys()),
                byKeys(right, join.rightKeys()), false);
    }

    private static SparkPlan byKeys(SparkPlan side, Seq<Expression> keys) {
        return sorted(Seqs.seq(Seqs.list(keys).stream().map(Expressions::ascending).toList()), side);
    }

    public static SparkPlan range(long start, long end, long step, int slices, Seq<Attribute> output) {
        return new RangeExec(new Range(start, end, step, Option.apply(slices), output, false));
    }

    public static SparkPlan rows(Seq<Attribute> output, List<InternalRow> rows) {
        return new LocalTableScanExec(output, Seqs.seq(rows), Option.empty(), false);
    }

    public static SparkPlan oneRow() {
        return new OneRowRelationExec();
    }
}
