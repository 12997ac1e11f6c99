package onager.kernel;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.BaseSubqueryExec;
import org.apache.spark.sql.execution.ExecSubqueryExpression;
import org.apache.spark.sql.execution.QueryExecution$;
import org.apache.spark.sql.execution.RDDScanExec;
import org.apache.spark.sql.execution.SortExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.exchange.BroadcastExchangeExec;
import org.apache.spark.sql.execution.python.EvalPythonUDTFExec;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractPartialFunction;

/**
 * Makes a decoded fragment executable: its placeholders become leaves, every node is made anew (what is transient in a
 * node, such as its session, is null after decoding), and the two preparation rules that a fragment still needs are applied.
 */
public final class Binder {
    static final String PLACEHOLDER = "onager-input:";
    private static final Object[] RULES = {"ApplyColumnarRulesAndInsertTransitions", "CollapseCodegenStages"};

    /** Gives the leaf for each placeholder. */
    public interface Leaves {
        /** Return the leaf for input *index*; *broadcast*: it stands right below a broadcast, which takes any number of partitions. */
        SparkPlan leaf(int index, RDDScanExec placeholder, boolean broadcast);

        /** Return what stands for *exchange*, a broadcast of input *index*, where it is held for others, too; else null. */
        SparkPlan shared(int index, BroadcastExchangeExec exchange);

        /** Return the leaf for input *index* with its rows in *order*, or null where it does not come so. */
        SparkPlan sorted(int index, RDDScanExec placeholder, Seq order);
    }

    private final Leaves leaves;
    private final Map made = new IdentityHashMap();

    public Binder(Leaves leaves) {
        this.leaves = leaves;
    }

    /** Return the index of the placeholder *plan*, or -1 when it is none. */
    static int index(SparkPlan plan) {
        if (!(plan instanceof RDDScanExec)) {
            return -1;
        }
        String name = ((RDDScanExec) plan).name();
        return name.startsWith(PLACEHOLDER) ? Integer.parseInt(name.substring(PLACEHOLDER.length())) : -1;
    }

    /** Return the executable form of *fragment* in the active session. */
    public SparkPlan bind(SparkPlan fragment, org.apache.spark.sql.classic.SparkSession session) {
        SparkPlan bound = node(fragment, false);
        List rules = rules(session);
        for (int i = 0; i < rules.size(); i++) {
            bound = (SparkPlan) ((Rule) rules.get(i)).apply(bound);
        }
        return bound;
    }

    /** Return the preparation rules that a fragment still needs, in Spark's order; raise when there is no such rule any more. */
    static List rules(org.apache.spark.sql.classic.SparkSession session) {
        return picked(QueryExecution$.MODULE$.preparations(session, scala.Option.empty(), false));
    }

    public static List picked(Seq all) {
        List found = new ArrayList();
        List missing = new ArrayList(Arrays.asList(RULES));
        for (int i = 0; i < all.size(); i++) {
            if (missing.remove(all.apply(i).getClass().getSimpleName())) {
                found.add(all.apply(i));
            }
        }
        if (!missing.isEmpty()) {
            throw new IllegalStateException("preparing a plan has no step " + missing + " here");
        }
        return found;
    }

    private SparkPlan node(SparkPlan plan, boolean broadcast) {
        SparkPlan known = (SparkPlan) made.get(plan);
        if (known != null) {
            return known; // a broadcast that occurs twice is built once
        }
        int index = index(plan);
        SparkPlan out = plan instanceof BroadcastExchangeExec ? shared((BroadcastExchangeExec) plan) : sorted(plan);
        if (out != null) {
            made.put(plan, out);
            return out;
        }
        if (index >= 0) {
            out = leaves.leaf(index, (RDDScanExec) plan, broadcast);
        } else {
            boolean below = plan instanceof BroadcastExchangeExec;
            boolean isGuarded = plan instanceof EvalPythonUDTFExec;
            Seq children = plan.children();
            Object[] bound = new Object[children.size()];
            for (int i = 0; i < bound.length; i++) {
                SparkPlan child = node((SparkPlan) children.apply(i), below);
                bound[i] = isGuarded ? UdtfGuardExec.below(child) : child;
            }
            out = bound.length == 0 ? plan : (SparkPlan) plan.withNewChildren(Kernel.seq(bound));
            if (out.subqueries().size() > 0) {
                out = (SparkPlan) out.transformExpressions(new Subqueries());
            }
            out = isGuarded ? UdtfGuardExec.above(out) : out;
        }
        made.put(plan, out);
        return out;
    }

    private SparkPlan shared(BroadcastExchangeExec exchange) {
        int index = index(exchange.child());
        return index < 0 ? null : leaves.shared(index, exchange);
    }

    /** What a sort over a placeholder becomes where the input can be had in that order, or null. */
    private SparkPlan sorted(SparkPlan plan) {
        if (!(plan instanceof SortExec)) {
            return null;
        }
        SortExec sort = (SortExec) plan;
        int index = index(sort.child());
        return index < 0 ? null : leaves.sorted(index, (RDDScanExec) sort.child(), sort.sortOrder());
    }

    private final class Subqueries extends AbstractPartialFunction {
        public boolean isDefinedAt(Object e) {
            return e instanceof ExecSubqueryExpression;
        }

        public Object applyOrElse(Object e, scala.Function1 otherwise) {
            if (!isDefinedAt(e)) {
                return otherwise.apply(e);
            }
            ExecSubqueryExpression subquery = (ExecSubqueryExpression) e;
            return subquery.withNewPlan((BaseSubqueryExec) node((SparkPlan) subquery.plan(), false));
        }
    }
}
