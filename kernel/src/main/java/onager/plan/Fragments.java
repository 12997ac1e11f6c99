package onager.plan;

import java.util.List;
import java.util.Map;
import onager.spark43.Nodes;
import onager.values.Seqs;
import org.apache.spark.sql.execution.BaseSubqueryExec;
import org.apache.spark.sql.execution.CollectLimitExec;
import org.apache.spark.sql.execution.ExecSubqueryExpression;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.TakeOrderedAndProjectExec;

/** Makes fragments of a physical plan, with some nodes replaced, and the operators that a stage needs above or below them. */
public final class Fragments {
    private Fragments() {}

    /** Returns a copy of a plan without code generation and transitions, with each node in *map* replaced. */
    static SparkPlan replaced(SparkPlan wrapped, Map<SparkPlan, SparkPlan> map) {
        SparkPlan node = Outline.unwrapped(wrapped);
        SparkPlan replacement = map.get(node);
        if (replacement != null) {
            return replacement;
        }
        if (!node.subqueries().isEmpty()) {
            node = node.transformExpressions(Seqs.change(ExecSubqueryExpression.class,
                    subquery -> subquery.withNewPlan((BaseSubqueryExec) replaced((SparkPlan) subquery.plan(), map))));
        }
        List<SparkPlan> children = Seqs.list(node.children());
        List<SparkPlan> made = children.stream().map(child -> replaced(child, map)).toList();
        return withChildren(node, made);
    }

    /** Returns *node* over *children*; *node* itself if they are its own. */
    public static SparkPlan withChildren(SparkPlan node, List<SparkPlan> children) {
        List<SparkPlan> before = Seqs.list(node.children());
        for (int i = 0; i < children.size(); i++) {
            if (children.get(i) != before.get(i)) {
                return node.withNewChildren(Seqs.seq(children));
            }
        }
        return node;
    }

    /**
     * Returns a local limit over *child*: of each partition, the rows that *limit* above it may need. If their order depends on a
     * subquery, whose result only the stage above knows, these are all rows.
     */
    static SparkPlan localLimit(SparkPlan limit, SparkPlan child) {
        if (limit instanceof TakeOrderedAndProjectExec top) {
            boolean waits = Seqs.list(top.sortOrder()).stream().anyMatch(ExecSubqueryExpression::hasSubquery);
            return waits ? child : Nodes.limit(top.limit(), Nodes.sorted(top.sortOrder(), child));
        }
        int most = ((CollectLimitExec) limit).limit();
        return most < 0 ? child : Nodes.limit(most, child); // no limit, only an offset
    }
}
