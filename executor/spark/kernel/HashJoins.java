package onager.kernel;

import java.io.IOException;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.optimizer.BuildLeft$;
import org.apache.spark.sql.catalyst.optimizer.BuildRight$;
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
import scala.collection.Iterator;
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
        if (free && node instanceof SortMergeJoinExec) {
            SparkPlan hashed = hashed((SortMergeJoinExec) node);
            out = hashed == null ? node : hashed;
        }
        Seq children = out.children();
        if (children.isEmpty()) {
            return out;
        }
        boolean below = ordersItself(out) || free && keepsOrder(out);
        Object[] made = new Object[children.size()];
        boolean changed = false;
        for (int i = 0; i < made.length; i++) {
            SparkPlan child = (SparkPlan) children.apply(i);
            made[i] = visit(child, below);
            changed = changed || made[i] != child;
        }
        return changed ? (SparkPlan) out.withNewChildren(Kernel.seq(made)) : out;
    }

    static boolean ordersItself(SparkPlan node) {
        return node instanceof SortExec || node instanceof TakeOrderedAndProjectExec || node instanceof HashAggregateExec
                || node instanceof ShuffledHashJoinExec;
    }

    static boolean keepsOrder(SparkPlan node) {
        return node instanceof ProjectExec || node instanceof FilterExec || node instanceof UnionExec || node instanceof BroadcastHashJoinExec;
    }

    /** Return the join with a hash table of its smaller side, or null when neither will do. */
    private SparkPlan hashed(SortMergeJoinExec join) throws IOException {
        if (left <= 0 || !areHashable(join.leftKeys()) || !areHashable(join.rightKeys())) {
            return null;
        }
        String type = typeOf(join);
        boolean inner = type.equals("Inner");
        boolean mayBuildRight = inner || type.equals("LeftOuter") || type.equals("LeftSemi") || type.equals("LeftAnti")
                || type.startsWith("ExistenceJoin");
        boolean mayBuildLeft = inner || type.equals("RightOuter");
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
        return Spark43.hashJoin(join, leftSide, rightSide, buildsRight ? (Object) BuildRight$.MODULE$ : (Object) BuildLeft$.MODULE$);
    }

    private static boolean areHashable(Seq keys) {
        Iterator each = keys.iterator();
        while (each.hasNext()) {
            if (!UnsafeRowUtils.isBinaryStable(((Expression) each.next()).dataType())) {
                return false;
            }
        }
        return true;
    }

    private static SparkPlan unsorted(SparkPlan side) {
        return side instanceof SortExec && !((SortExec) side).global() ? ((SortExec) side).child() : side;
    }

    /** Return the most bytes that a task gets of *side*: as much as of the input from which it only takes away; else -1. */
    private long bytes(SparkPlan side) throws IOException {
        SparkPlan node = side;
        while (takesAway(node)) {
            node = (SparkPlan) node.children().head();
        }
        int index = Binder.index(node);
        return index < 0 ? -1L : sizes.largestBucket(index);
    }

    /** Whether *node* gives at most the rows of its first child. */
    private static boolean takesAway(SparkPlan node) {
        if (node instanceof BaseJoinExec) {
            String type = typeOf((BaseJoinExec) node);
            return type.equals("LeftSemi") || type.equals("LeftAnti") || type.startsWith("ExistenceJoin");
        }
        return node instanceof ProjectExec || node instanceof FilterExec || node instanceof SortExec || node instanceof HashAggregateExec;
    }

    static String typeOf(BaseJoinExec join) {
        return String.valueOf(join.joinType()).replace("$", "");
    }
}
