package onager.bind;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import onager.plan.Fragments;
import onager.spark43.Nodes;
import onager.values.Seqs;
import org.apache.spark.sql.catalyst.expressions.RowOrdering;
import org.apache.spark.sql.catalyst.plans.InnerLike;
import org.apache.spark.sql.catalyst.plans.JoinType;
import org.apache.spark.sql.catalyst.plans.LeftOuter$;
import org.apache.spark.sql.catalyst.plans.RightOuter$;
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

/**
 * Turns broadcast joins into sort-merge joins within each task if a stage broadcasts more than its executor may hold. Each task then reads
 * the whole side and sorts it, which can spill. A join stays unchanged if an operator above relies on the order of its rows, or if its
 * number of partitions is unknown.
 */
final class BroadcastLimit {
    /** The uses of one broadcast in a stage. */
    private static final class Use {
        final long bytes;
        final List<Integer> indexes = new ArrayList<>();
        boolean canBeSorted = true;

        Use(long bytes) {
            this.bytes = bytes;
        }
    }

    private final StageInputs inputs;
    private final int partitions;
    private final Map<Object, Use> uses = new LinkedHashMap<>(); // by key
    private final Set<Integer> sorted = new HashSet<>(); // indexes

    /** Analyse *plan*, which has *partitions* partitions; *free*: the order of its rows does not matter. */
    BroadcastLimit(StageInputs inputs, SparkPlan plan, int partitions, boolean free) {
        this.inputs = inputs;
        this.partitions = partitions;
        look(plan, free, true);
    }

    /** Return the keys of the stage's broadcasts. */
    Collection<Object> keys() {
        return uses.keySet();
    }

    /** Return the analysed *plan* without as many of its largest broadcasts as necessary for the rest to fit *most* bytes. */
    SparkPlan within(SparkPlan plan, long most) {
        long total = uses.values().stream().mapToLong(use -> use.bytes).sum();
        var sortable = uses.values().stream().filter(use -> use.canBeSorted).sorted(Comparator.comparingLong(use -> -use.bytes)).toList();
        for (Use use : sortable) {
            if (total <= most) {
                break;
            }
            total -= use.bytes;
            sorted.addAll(use.indexes);
        }
        return sorted.isEmpty() ? plan : changed(plan);
    }

    /** *whole*: *node* has as many partitions as the stage. */
    private void look(SparkPlan node, boolean free, boolean whole) {
        if (node instanceof BroadcastExchangeExec exchange) {
            note(exchange, false);
        }
        boolean freeBelow = HashJoins.isFreeBelow(node, free);
        boolean wholeBelow = whole && keepsPartitions(node);
        for (SparkPlan child : Seqs.list(node.children())) {
            if (node instanceof BroadcastHashJoinExec join && child instanceof BroadcastExchangeExec exchange) {
                note(exchange, free && whole && isSortable(join));
            } else {
                look(child, freeBelow, wholeBelow);
            }
        }
        for (SparkPlan subquery : Seqs.list(node.subqueries())) {
            look(subquery, false, false);
        }
    }

    private void note(BroadcastExchangeExec exchange, boolean canBeSorted) {
        int index = Binder.index(exchange.child());
        Object key = index < 0 ? null : inputs.key(index, exchange);
        if (key == null) {
            return;
        }
        Use use = uses.get(key);
        if (use == null) {
            use = new Use(inputs.broadcastBytes(index));
            uses.put(key, use);
        }
        use.indexes.add(index);
        use.canBeSorted = use.canBeSorted && canBeSorted;
    }

    private static boolean isSortable(BroadcastHashJoinExec join) {
        JoinType type = join.joinType();
        boolean canBe = type instanceof InnerLike || type == LeftOuter$.MODULE$ || type == RightOuter$.MODULE$ || HashJoins.filters(type);
        return canBe && !join.isNullAwareAntiJoin() && RowOrdering.isOrderable(join.leftKeys());
    }

    private static boolean keepsPartitions(SparkPlan node) {
        return node instanceof ProjectExec || node instanceof FilterExec || node instanceof SortExec || node instanceof BaseAggregateExec
                || node instanceof ExpandExec || node instanceof GenerateExec || node instanceof BroadcastHashJoinExec
                || node instanceof SortMergeJoinExec || node instanceof ShuffledHashJoinExec;
    }

    private SparkPlan changed(SparkPlan node) {
        var made = new ArrayList<SparkPlan>();
        boolean sorts = false;
        for (SparkPlan child : Seqs.list(node.children())) {
            if (child instanceof BroadcastExchangeExec exchange && sorted.contains(Binder.index(exchange.child()))) {
                inputs.readByEach(Binder.index(exchange.child()), partitions);
                made.add(exchange.child());
                sorts = true;
            } else {
                made.add(changed(child));
            }
        }
        return sorts ? Nodes.sortMergeJoin((BroadcastHashJoinExec) node, made.get(0), made.get(1)) : Fragments.withChildren(node, made);
    }
}
