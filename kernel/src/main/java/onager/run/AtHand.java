package onager.run;

import java.util.List;
import java.util.function.Function;
import onager.values.Seqs;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskContext$;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.CollectLimitExec;
import org.apache.spark.sql.execution.CollectTailExec;
import org.apache.spark.sql.execution.CommandResultExec;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.InputAdapter;
import org.apache.spark.sql.execution.LocalTableScanExec;
import org.apache.spark.sql.execution.OneRowRelationExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.RangeExec;
import org.apache.spark.sql.execution.SQLExecution$;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.UnionExec;
import org.apache.spark.sql.execution.WholeStageCodegenExec;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import scala.collection.Iterator;

/**
 * Small results that the driver computes by itself, since a job of Spark would take longer than they do, or that it collects as Spark's own
 * Connect server does: a limit then reads only as many partitions as it needs, and exchanges nothing.
 */
final class AtHand {
    /** More rows are computed by tasks. */
    private static final int MOST = 10_000;

    private AtHand() {}

    /** Return whether the rows of *plan* are computed or collected here. */
    static boolean has(SparkPlan plan) {
        return isComputed(plan) || limit(root(plan)) <= MOST;
    }

    /** Give the rows of *query*, of which there `has` to be few, to *task*, and return its outcome. */
    static Outcome given(Task task, SparkSession session, QueryExecution query) {
        SparkPlan plan = query.executedPlan();
        if (isComputed(plan)) {
            return inTask(task, context -> all(query.toRdd(), context));
        }
        // else the tasks would not know the session's settings
        if (plan instanceof CollectLimitExec first && first.offset() == 0 && isComputed(first.child())) {
            RDD<InternalRow> rows = SQLExecution$.MODULE$.withSQLConfPropagated(session, first.child()::execute);
            return inTask(task, context -> all(rows, context).take(first.limit()));
        }
        InternalRow[] rows = SQLExecution$.MODULE$.withSQLConfPropagated(session, plan::executeCollect);
        return inTask(task, context -> Seqs.seq(List.of(rows)).iterator());
    }

    private static Outcome inTask(Task task, Function<TaskContext, Iterator<InternalRow>> rows) {
        TaskContext context = TaskContext$.MODULE$.empty();
        return TaskContext$.MODULE$.withTaskContext(context, () -> task.apply(context, rows.apply(context)));
    }

    private static SparkPlan root(SparkPlan plan) {
        return plan instanceof AdaptiveSparkPlanExec adaptive ? adaptive.initialPlan() : plan;
    }

    /** Return how many rows at most *root* gives to who collects them. */
    private static int limit(SparkPlan root) {
        if (root instanceof CollectLimitExec first && first.limit() >= 0) {
            return first.limit();
        }
        return root instanceof CollectTailExec last ? last.limit() : Integer.MAX_VALUE;
    }

    /** Whether all rows come from a few ones by operators that need nothing of a task, and read nothing. */
    private static boolean isComputed(SparkPlan plan) {
        if (plan instanceof RangeExec range) {
            return range.numElements().isValidInt() && range.numElements().toInt() <= MOST;
        }
        if (plan instanceof LocalTableScanExec local) {
            return local.rows().size() <= MOST;
        }
        if (plan instanceof CommandResultExec command) {
            return command.rows().size() <= MOST;
        }
        boolean isKnown = plan instanceof OneRowRelationExec || plan instanceof WholeStageCodegenExec || plan instanceof InputAdapter
                || plan instanceof ProjectExec || plan instanceof FilterExec || plan instanceof UnionExec;
        return isKnown && Seqs.list(plan.children()).stream().allMatch(AtHand::isComputed);
    }

    private static Iterator<InternalRow> all(RDD<InternalRow> rdd, TaskContext context) {
        return Seqs.seq(List.of(rdd.partitions())).iterator().flatMap(partition -> rdd.iterator(partition, context));
    }
}
