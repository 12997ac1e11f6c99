package onager.bind;

import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import onager.failure.ChangedInput;
import onager.plan.PrunedScanExec;
import onager.spark43.Lookups;
import onager.spark43.Nodes;
import onager.values.Seqs;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.BaseSubqueryExec;
import org.apache.spark.sql.execution.ExecSubqueryExpression;
import org.apache.spark.sql.execution.RDDScanExec;
import org.apache.spark.sql.execution.SortExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.UnionExec;
import org.apache.spark.sql.execution.exchange.BroadcastExchangeExec;
import org.apache.spark.sql.execution.python.EvalPythonUDTFExec;

/**
 * Makes a decoded fragment executable: replaces its placeholders with leaves, copies every node (transient fields, such as the session, are
 * null after decoding), and applies the two preparation rules that a fragment still needs.
 */
final class Binder {
    static final String PLACEHOLDER = "onager-input:";

    private final SparkSession session;
    private final boolean inOneTask;
    private final StageInputs inputs;
    private final Map<SparkPlan, SparkPlan> made = new IdentityHashMap<>();

    private Binder(SparkSession session, boolean inOneTask, StageInputs inputs) {
        this.session = session;
        this.inOneTask = inOneTask;
        this.inputs = inputs;
    }

    /** Return the index of the placeholder *plan*, or -1 if it is not one. */
    static int index(SparkPlan plan) {
        return plan instanceof RDDScanExec scan && scan.name().startsWith(PLACEHOLDER)
                ? Integer.parseInt(scan.name().substring(PLACEHOLDER.length()))
                : -1;
    }

    /**
     * Return *plan* with leaves, executed up to its RDD, which must have *wanted* partitions; *session* must be active. *inOneTask*: the plan
     * is that of several stages, and what has several partitions in it is coalesced.
     */
    static Bound bind(SparkSession session, SparkPlan plan, int wanted, boolean inOneTask, StageInputs inputs) {
        var binder = new Binder(session, inOneTask, inputs);
        SparkPlan bound = binder.prepared(binder.node(plan, false));
        RDD<InternalRow> rdd = bound.execute();
        if (rdd.getNumPartitions() != wanted) {
            throw new ChangedInput("the stage was planned with " + wanted + " partitions, but its plan now has "
                    + rdd.getNumPartitions() + ": its files have changed since, or its leaves do not match\n" + bound.treeString());
        }
        return new Bound(session, bound, rdd, List.of(), null, 0L);
    }

    /** Return *plan*, which has leaves, after the rules; of what is above a subquery, the rules do not see the subquery. */
    private SparkPlan prepared(SparkPlan plan) {
        SparkPlan out = plan;
        for (var rule : Lookups.rules(session)) {
            out = rule.apply(out);
        }
        return out;
    }

    private SparkPlan node(SparkPlan plan, boolean broadcast) {
        SparkPlan known = made.get(plan);
        if (known == null) { // a broadcast that occurs twice is built once
            known = anew(plan, broadcast);
            known = inOneTask && hasSeveralPartitions(plan, known, broadcast) ? Nodes.inOneTask(known) : known;
            made.put(plan, known);
        }
        return known;
    }

    /**
     * Whether *bound*, made of *plan*, may have other than one partition and matters: only sources and unions have, since what is above
     * them has as many as they. Not below a *broadcast*, or below a pruned scan, which has its own number of them.
     */
    private static boolean hasSeveralPartitions(SparkPlan plan, SparkPlan bound, boolean broadcast) {
        boolean isSource = index(plan) >= 0 && !broadcast && bound.execute().getNumPartitions() != 1;
        return isSource || plan instanceof UnionExec || plan instanceof PrunedScanExec;
    }

    private SparkPlan anew(SparkPlan plan, boolean broadcast) {
        if (index(plan) >= 0) {
            return inputs.leaf(index(plan), (RDDScanExec) plan, broadcast);
        }
        SparkPlan instead = instead(plan);
        if (instead != null) {
            return instead;
        }
        boolean isGuarded = plan instanceof EvalPythonUDTFExec;
        List<SparkPlan> bound = Seqs.list(plan.children()).stream()
                .map(child -> node(child, plan instanceof BroadcastExchangeExec || plan instanceof PrunedScanExec))
                .map(child -> isGuarded ? UdtfGuardExec.below(child) : child)
                .map(child -> inOneTask && plan instanceof BaseSubqueryExec ? prepared(child) : child)
                .toList();
        SparkPlan out = bound.isEmpty() ? plan : plan.withNewChildren(Seqs.seq(bound));
        if (!out.subqueries().isEmpty()) {
            out = out.transformExpressions(Seqs.change(ExecSubqueryExpression.class,
                    subquery -> subquery.withNewPlan((BaseSubqueryExec) node((SparkPlan) subquery.plan(), false))));
        }
        return isGuarded ? UdtfGuardExec.above(out) : out;
    }

    /** The replacement of a shared broadcast of a placeholder, or of a sort whose input can be read in that order; else null. */
    private SparkPlan instead(SparkPlan plan) {
        if (plan instanceof BroadcastExchangeExec exchange && index(exchange.child()) >= 0) {
            return inputs.shared(index(exchange.child()), exchange);
        }
        if (plan instanceof SortExec sort && index(sort.child()) >= 0) {
            return inputs.sorted(index(sort.child()), (RDDScanExec) sort.child(), sort.sortOrder());
        }
        return null;
    }
}
