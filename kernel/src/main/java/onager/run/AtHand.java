package onager.run;

import java.util.List;
import java.util.function.Function;
import onager.values.Seqs;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskContext$;
import org.apache.spark.TaskContextImpl;
import org.apache.spark.TaskKilledException;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.CallMethodViaReflection;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.HigherOrderFunction;
import org.apache.spark.sql.catalyst.expressions.UserDefinedExpression;
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
import org.apache.spark.sql.internal.SQLConf$;
import scala.Option;
import scala.collection.Iterator;

/**
 * Small results that the driver computes by itself, since a job of Spark would take longer than they do, or that it collects as Spark's own
 * Connect server does: a limit then reads only as many partitions as it needs, and exchanges nothing.
 */
final class AtHand {
    /** More rows are computed by tasks. */
    private static final long MOST_COMPUTED = 10_000L;

    /** More rows are exchanged: each may be large, and the driver holds all of them. */
    private static final int MOST_COLLECTED = 100;

    private static final long TOO_MANY = Long.MAX_VALUE / 2L;
    private static final String EXPRESSIONS = Expression.class.getPackageName();

    private AtHand() {}

    /** Return whether the rows of *plan* are computed or collected here. */
    static boolean has(SparkPlan plan) {
        return isComputed(plan) || limit(plan instanceof AdaptiveSparkPlanExec adaptive ? adaptive.initialPlan() : plan) <= MOST_COLLECTED;
    }

    /** Give the rows of *query*, of which there `has` to be few, to *task*, and return its outcome. */
    static Outcome given(Task task, SparkSession session, QueryExecution query) {
        SparkPlan plan = query.executedPlan();
        if (isComputed(plan)) {
            RDD<InternalRow> rows = query.toRdd();
            return inTask(task, session, context -> all(rows, context));
        }
        if (plan instanceof CollectLimitExec first && first.offset() == 0 && isComputed(first.child())) {
            RDD<InternalRow> rows = first.child().execute();
            return inTask(task, session, context -> all(rows, context).take(first.limit()));
        }
        // else the tasks would not know the session's settings
        InternalRow[] rows = SQLExecution$.MODULE$.withSQLConfPropagated(session, plan::executeCollect);
        return inTask(task, session, context -> Seqs.seq(List.of(rows)).iterator());
    }

    /** Run *task* in this thread, which stands for its tasks, under the session's settings. */
    private static Outcome inTask(Task task, SparkSession session, Function<TaskContext, Iterator<InternalRow>> rows) {
        TaskContextImpl context = TaskContext$.MODULE$.empty();
        try {
            return TaskContext$.MODULE$.withTaskContext(context, () -> SQLConf$.MODULE$.withExistingConf(session.sessionState().conf(),
                    () -> task.apply(context, rows.apply(context).map(AtHand::unlessInterrupted))));
        } finally {
            context.markTaskCompleted(Option.empty());
        }
    }

    /** Return *row*; throw if the task was cancelled, of which only this thread learns. */
    private static InternalRow unlessInterrupted(InternalRow row) {
        if (Thread.interrupted()) {
            throw new TaskKilledException("cancelled");
        }
        return row;
    }

    /** Return how many rows at most *root* gives to who collects them. */
    private static int limit(SparkPlan root) {
        if (root instanceof CollectLimitExec first && first.limit() >= 0) {
            return first.limit();
        }
        return root instanceof CollectTailExec last ? last.limit() : Integer.MAX_VALUE;
    }

    private static boolean isComputed(SparkPlan plan) {
        return rows(plan) <= MOST_COMPUTED;
    }

    /** Return how many rows *plan* makes by itself, if its operators need nothing of a task, and read nothing; else too many. */
    private static long rows(SparkPlan plan) {
        if (plan instanceof RangeExec range) {
            return range.numElements().isValidLong() ? range.numElements().toLong() : TOO_MANY;
        }
        if (plan instanceof LocalTableScanExec local) {
            return local.rows().size();
        }
        if (plan instanceof CommandResultExec command) {
            return command.rows().size();
        }
        if (plan instanceof OneRowRelationExec) {
            return 1L;
        }
        boolean isKnown = plan instanceof WholeStageCodegenExec || plan instanceof InputAdapter || plan instanceof UnionExec
                || (plan instanceof ProjectExec || plan instanceof FilterExec) && Seqs.list(plan.expressions()).stream().allMatch(AtHand::isCheap);
        return isKnown ? Seqs.list(plan.children()).stream().mapToLong(AtHand::rows).reduce(0L, AtHand::sum) : TOO_MANY;
    }

    private static long sum(long one, long other) {
        return Math.min(TOO_MANY, Math.min(TOO_MANY, one) + Math.min(TOO_MANY, other));
    }

    /** Whether *expression* is one of Spark's own that take no code of users, and no time to speak of for a row. */
    private static boolean isCheap(Expression expression) {
        return expression.getClass().getPackageName().equals(EXPRESSIONS) && !(expression instanceof UserDefinedExpression)
                && !(expression instanceof HigherOrderFunction) && !(expression instanceof CallMethodViaReflection)
                && Seqs.list(expression.children()).stream().allMatch(AtHand::isCheap);
    }

    private static Iterator<InternalRow> all(RDD<InternalRow> rdd, TaskContext context) {
        return Seqs.seq(List.of(rdd.partitions())).iterator().flatMap(partition -> rdd.iterator(partition, context));
    }
}
