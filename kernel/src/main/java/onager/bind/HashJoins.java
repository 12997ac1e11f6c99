package onager.bind;

import java.util.ArrayList;
import onager.plan.Fragments;
import onager.spark43.Nodes;
import onager.values.Seqs;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.ExistenceJoin;
import org.apache.spark.sql.catalyst.plans.Inner$;
import org.apache.spark.sql.catalyst.plans.JoinType;
import org.apache.spark.sql.catalyst.plans.LeftAnti$;
import org.apache.spark.sql.catalyst.plans.LeftOuter$;
import org.apache.spark.sql.catalyst.plans.LeftSemi$;
import org.apache.spark.sql.catalyst.plans.RightOuter$;
import org.apache.spark.sql.catalyst.util.UnsafeRowUtils;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SortExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.TakeOrderedAndProjectExec;
import org.apache.spark.sql.execution.UnionExec;
import org.apache.spark.sql.execution.aggregate.HashAggregateExec;
import org.apache.spark.sql.execution.joins.BaseJoinExec;
import org.apache.spark.sql.execution.joins.BroadcastHashJoinExec;
import org.apache.spark.sql.execution.joins.ShuffledHashJoinExec;
import org.apache.spark.sql.execution.joins.SortMergeJoinExec;
import scala.collection.immutable.Seq;

/**
 * Turns sort-merge joins into hash joins if one side is small. The size of each bucket is known when the stage is bound, since its input
 * files exist then. The decision depends only on these sizes, so all attempts of a stage decide alike until one runs out of memory. A join stays unchanged if an
 * operator above relies on its order.
 */
final class HashJoins {
    private final StageInputs inputs;
    private long left;

    /** *most*: the maximum size of all hash tables of a task, in bytes. */
    HashJoins(StageInputs inputs, long most) {
        this.inputs = inputs;
        this.left = most;
    }

    /** Return *node* with its joins changed where possible; *free*: the order of its rows does not matter. */
    SparkPlan visit(SparkPlan node, boolean free) {
        SparkPlan out = node;
        if (free && node instanceof SortMergeJoinExec join) {
            SparkPlan hashed = hashed(join);
            out = hashed == null ? node : hashed;
        }
        boolean below = isFreeBelow(out, free);
        var made = new ArrayList<SparkPlan>();
        for (SparkPlan child : Seqs.list(out.children())) {
            made.add(visit(child, below));
        }
        return Fragments.withChildren(out, made);
    }

    /** Whether the order of rows of the children of *node* does not matter, given whether that of *node* does not. */
    static boolean isFreeBelow(SparkPlan node, boolean free) {
        boolean ordersItself = node instanceof SortExec || node instanceof TakeOrderedAndProjectExec || node instanceof HashAggregateExec
                || node instanceof ShuffledHashJoinExec;
        boolean keepsOrder = node instanceof ProjectExec || node instanceof FilterExec || node instanceof UnionExec
                || node instanceof BroadcastHashJoinExec;
        return ordersItself || free && keepsOrder;
    }

    /** Return the join with a hash table of its smaller side, or null if neither side qualifies. */
    private SparkPlan hashed(SortMergeJoinExec join) {
        if (left <= 0 || !areHashable(join.leftKeys()) || !areHashable(join.rightKeys())) {
            return null;
        }
        JoinType type = join.joinType();
        boolean mayBuildRight = type == Inner$.MODULE$ || type == LeftOuter$.MODULE$ || filters(type);
        boolean mayBuildLeft = type == Inner$.MODULE$ || type == RightOuter$.MODULE$;
        SparkPlan leftSide = unsorted(join.left());
        SparkPlan rightSide = unsorted(join.right());
        long onLeft = mayBuildLeft ? bytes(leftSide) : -1L;
        long onRight = mayBuildRight ? bytes(rightSide) : -1L;
        boolean buildsRight = onRight >= 0 && (onLeft < 0 || onRight <= onLeft);
        long bytes = buildsRight ? onRight : onLeft;
        if (bytes < 0 || bytes > left) {
            return null;
        }
        left -= bytes;
        return Nodes.hashJoin(join, leftSide, rightSide, buildsRight);
    }

    /** Whether a join of that type returns each row of its left side at most once, and no other rows. */
    static boolean filters(JoinType type) {
        return type == LeftSemi$.MODULE$ || type == LeftAnti$.MODULE$ || type instanceof ExistenceJoin;
    }

    private static boolean areHashable(Seq<Expression> keys) {
        return Seqs.list(keys).stream().allMatch(key -> UnsafeRowUtils.isBinaryStable(key.dataType()));
    }

    private static SparkPlan unsorted(SparkPlan side) {
        return side instanceof SortExec sort && !sort.global() ? sort.child() : side;
    }

    /** Return an upper bound in bytes of a task's rows of *side*, by the size of its input; -1: there is none. */
    private long bytes(SparkPlan side) {
        double growth = 1.0;
        SparkPlan node = side;
        while (addsNoRows(node)) {
            growth *= RowSizes.growth(node);
            node = node.children().head();
        }
        int index = Binder.index(node);
        long bytes = index < 0 || Double.isInfinite(growth) ? -1L : inputs.largestBucket(index);
        return bytes < 0 ? -1L : (long) Math.ceil(growth * bytes);
    }

    /** Whether each row of *node* comes of one or more rows of its first child, and each of these gives one row at most. */
    private static boolean addsNoRows(SparkPlan node) {
        return node instanceof BaseJoinExec join
                ? filters(join.joinType())
                : node instanceof ProjectExec || node instanceof FilterExec || node instanceof SortExec || node instanceof HashAggregateExec;
    }
}
