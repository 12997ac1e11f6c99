package onager.bind;

import java.io.IOException;
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
 * Joins by a hash table what was planned as a join of sorted sides, where one side turned out to be small: its bytes in every
 * bucket are known now, when the files that hold it are there. What is decided depends on those bytes alone, so all attempts of a
 * stage join alike. A join stays as it is where somebody above relies on its order.
 */
final class HashJoins {
    /** Says how large inputs are. */
    interface Sizes {
        /** Return the most bytes that any bucket of input *index* holds, uncompressed; -1 when that cannot be told. */
        long largestBucket(int index) throws IOException;
    }

    private final Sizes sizes;
    private long left;

    /** *most*: bytes that the tables of a task may hold together. */
    HashJoins(Sizes sizes, long most) {
        this.sizes = sizes;
        this.left = most;
    }

    /** Return *node* with those of its joins changed that may be; *free*: nobody minds the order of its rows. */
    SparkPlan visit(SparkPlan node, boolean free) throws IOException {
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

    /** Whether nobody minds the order of the rows of the children of *node*, given whether that is so for *node* itself. */
    static boolean isFreeBelow(SparkPlan node, boolean free) {
        boolean ordersItself = node instanceof SortExec || node instanceof TakeOrderedAndProjectExec || node instanceof HashAggregateExec
                || node instanceof ShuffledHashJoinExec;
        boolean keepsOrder = node instanceof ProjectExec || node instanceof FilterExec || node instanceof UnionExec
                || node instanceof BroadcastHashJoinExec;
        return ordersItself || free && keepsOrder;
    }

    /** Return the join with a hash table of its smaller side, or null when neither will do. */
    private SparkPlan hashed(SortMergeJoinExec join) throws IOException {
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

    /** Whether a join of that type gives rows of its left side, each once at most. */
    static boolean filters(JoinType type) {
        return type == LeftSemi$.MODULE$ || type == LeftAnti$.MODULE$ || type instanceof ExistenceJoin;
    }

    private static boolean areHashable(Seq<Expression> keys) {
        return Seqs.list(keys).stream().allMatch(key -> UnsafeRowUtils.isBinaryStable(key.dataType()));
    }

    private static SparkPlan unsorted(SparkPlan side) {
        return side instanceof SortExec sort && !sort.global() ? sort.child() : side;
    }

    /** Return the most bytes that a task gets of *side*: as much as of the input from which it only takes away; else -1. */
    private long bytes(SparkPlan side) throws IOException {
        SparkPlan node = side;
        while (takesAway(node)) {
            node = node.children().head();
        }
        int index = Binder.index(node);
        return index < 0 ? -1L : sizes.largestBucket(index);
    }

    /** Whether *node* gives at most the rows of its first child. */
    private static boolean takesAway(SparkPlan node) {
        return node instanceof BaseJoinExec join
                ? filters(join.joinType())
                : node instanceof ProjectExec || node instanceof FilterExec || node instanceof SortExec || node instanceof HashAggregateExec;
    }
}
