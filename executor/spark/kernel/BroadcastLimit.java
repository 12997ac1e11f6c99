package onager.kernel;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.RowOrdering;
import org.apache.spark.sql.execution.ExpandExec;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.GenerateExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SortExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec;
import org.apache.spark.sql.execution.exchange.BroadcastExchangeExec;
import org.apache.spark.sql.execution.joins.BroadcastHashJoinExec;
import org.apache.spark.sql.execution.joins.ShuffledHashJoinExec;
import org.apache.spark.sql.execution.joins.SortMergeJoinExec;
import scala.collection.immutable.Seq;

/**
 * Joins by sorting, within each task, what was planned as a join with a broadcast, where what a stage broadcasts is more than its executor
 * may hold. Each task then reads all of that side, and sorts it, which spills. A join stays as it is where somebody above relies on
 * the order of its rows, or where it cannot be told how many partitions it has.
 */
final class BroadcastLimit {
    private static final String SORTABLE = " Inner Cross LeftOuter RightOuter LeftSemi LeftAnti ";

    /** Knows what is broadcast. */
    interface Inputs {
        /** Return what identifies a broadcast of input *index*, or null where its size is not known. */
        Object key(int index, BroadcastExchangeExec exchange);

        /** Return about how many bytes it takes in memory. */
        long broadcastBytes(int index) throws IOException;

        /** Let each partition read all of input *index*. */
        void readByEach(int index, int partitions);
    }

    /** All that a stage does with one broadcast. */
    private static final class Use {
        final long bytes;
        final List indexes = new ArrayList();
        boolean canBeSorted = true;

        Use(long bytes) {
            this.bytes = bytes;
        }
    }

    private final Inputs inputs;
    private final int partitions;
    private final Map uses = new LinkedHashMap(); // by key
    private final Set sorted = new HashSet(); // indexes

    /** Look at *plan*, of so many partitions; *free*: nobody minds the order of its rows. */
    BroadcastLimit(Inputs inputs, SparkPlan plan, int partitions, boolean free) throws IOException {
        this.inputs = inputs;
        this.partitions = partitions;
        look(plan, free, true);
    }

    /** Return what the stage broadcasts. */
    Collection keys() {
        return uses.keySet();
    }

    /** Return *plan*, which was looked at, with as many of its largest broadcasts left out as it takes to hold *most* bytes. */
    SparkPlan within(SparkPlan plan, long most) {
        List left = new ArrayList(uses.values());
        long total = 0;
        for (int i = 0; i < left.size(); i++) {
            total += ((Use) left.get(i)).bytes;
        }
        for (Use use = largest(left); total > most && use != null; use = largest(left)) {
            left.remove(use);
            total -= use.bytes;
            sorted.addAll(use.indexes);
        }
        return sorted.isEmpty() ? plan : changed(plan);
    }

    private static Use largest(List uses) {
        Use found = null;
        for (int i = 0; i < uses.size(); i++) {
            Use use = (Use) uses.get(i);
            if (use.canBeSorted && (found == null || use.bytes > found.bytes)) {
                found = use;
            }
        }
        return found;
    }

    /** *whole*: *node* has the partitions of the stage. */
    private void look(SparkPlan node, boolean free, boolean whole) throws IOException {
        boolean isJoin = node instanceof BroadcastHashJoinExec;
        if (node instanceof BroadcastExchangeExec) {
            note((BroadcastExchangeExec) node, false);
        }
        boolean freeBelow = HashJoins.ordersItself(node) || free && HashJoins.keepsOrder(node);
        boolean wholeBelow = whole && keepsPartitions(node);
        Seq children = node.children();
        for (int i = 0; i < children.size(); i++) {
            SparkPlan child = (SparkPlan) children.apply(i);
            if (isJoin && child instanceof BroadcastExchangeExec) {
                note((BroadcastExchangeExec) child, free && whole && isSortable((BroadcastHashJoinExec) node));
            } else {
                look(child, freeBelow, wholeBelow);
            }
        }
        Seq subqueries = node.subqueries();
        for (int i = 0; i < subqueries.size(); i++) {
            look((SparkPlan) subqueries.apply(i), false, false);
        }
    }

    private void note(BroadcastExchangeExec exchange, boolean canBeSorted) throws IOException {
        int index = Binder.index(exchange.child());
        Object key = index < 0 ? null : inputs.key(index, exchange);
        if (key == null) {
            return;
        }
        Use use = (Use) uses.get(key);
        if (use == null) {
            use = new Use(inputs.broadcastBytes(index));
            uses.put(key, use);
        }
        use.indexes.add(Integer.valueOf(index));
        use.canBeSorted = use.canBeSorted && canBeSorted;
    }

    private static boolean isSortable(BroadcastHashJoinExec join) {
        String type = HashJoins.typeOf(join);
        return !join.isNullAwareAntiJoin() && (SORTABLE.contains(" " + type + " ") || type.startsWith("ExistenceJoin"))
                && RowOrdering.isOrderable(join.leftKeys());
    }

    private static boolean keepsPartitions(SparkPlan node) {
        return node instanceof ProjectExec || node instanceof FilterExec || node instanceof SortExec || node instanceof BaseAggregateExec
                || node instanceof ExpandExec || node instanceof GenerateExec || node instanceof BroadcastHashJoinExec
                || node instanceof SortMergeJoinExec || node instanceof ShuffledHashJoinExec;
    }

    private SparkPlan changed(SparkPlan node) {
        Seq children = node.children();
        if (children.isEmpty()) {
            return node;
        }
        Object[] made = new Object[children.size()];
        boolean differs = false;
        boolean sorts = false;
        for (int i = 0; i < made.length; i++) {
            SparkPlan child = (SparkPlan) children.apply(i);
            int index = child instanceof BroadcastExchangeExec ? Binder.index(((BroadcastExchangeExec) child).child()) : -1;
            if (index >= 0 && sorted.contains(Integer.valueOf(index))) {
                inputs.readByEach(index, partitions);
                made[i] = ((BroadcastExchangeExec) child).child();
                sorts = true;
            } else {
                made[i] = changed(child);
            }
            differs = differs || made[i] != child;
        }
        if (sorts) {
            return Spark43.sortMergeJoin((BroadcastHashJoinExec) node, (SparkPlan) made[0], (SparkPlan) made[1]);
        }
        return differs ? (SparkPlan) node.withNewChildren(Kernel.seq(made)) : node;
    }
}
