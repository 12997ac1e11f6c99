package onager.plan;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import onager.spark43.Expressions;
import onager.spark43.Nodes;
import onager.values.Seqs;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Offset;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.WithCTE;

/** Finds the columns by which a query orders its result; two sorted results agree in these columns row by row, even with ties. */
public final class Orders {
    private Orders() {}

    /**
     * Look at an analyzed query.
     *
     * @return {facts, plan}: facts is "limited|whole tab keys", where keys are the positions of the sort columns, separated by commas, or
     *     empty; plan is the query, with columns added at its end for keys that its output lacks
     */
    public static Object[] of(LogicalPlan query) {
        boolean limited = false;
        LogicalPlan at = query;
        while (at != null && !(at instanceof Sort)) {
            limited = limited || isLimit(at);
            at = below(at);
        }
        String kind = limited ? "limited\t" : "whole\t";
        if (!(at instanceof Sort sort) || !sort.global()) {
            return new Object[] {kind, query};
        }
        List<Expression> keys = new ArrayList<>();
        for (SortOrder order : Seqs.list(sort.order())) {
            if (!order.child().deterministic()) {
                return new Object[] {kind, query};
            }
            keys.add(order.child());
        }
        String places = places(query, keys);
        if (places != null) {
            return new Object[] {kind + places, query};
        }
        List<NamedExpression> added = new ArrayList<>();
        LogicalPlan wider = widened(query, keys, added);
        return new Object[] {kind + places(wider, added), wider};
    }

    private static boolean isLimit(LogicalPlan plan) {
        return plan instanceof GlobalLimit || plan instanceof LocalLimit || plan instanceof Offset;
    }

    /** The only input of an operator that keeps the order of rows; null for other operators. */
    private static LogicalPlan below(LogicalPlan plan) {
        if (plan instanceof WithCTE with) {
            return with.plan();
        }
        return plan instanceof Project || plan instanceof SubqueryAlias || isLimit(plan) ? plan.children().apply(0) : null;
    }

    /** The positions of the keys in the output; null if it lacks one. */
    private static String places(LogicalPlan plan, List<?> keys) {
        List<Object> output = Seqs.list(plan.output()).stream().<Object>map(Attribute::exprId).toList();
        var places = keys.stream().map(key -> key instanceof Attribute a ? output.lastIndexOf(a.exprId()) : -1).toList();
        return places.contains(-1) ? null : places.stream().map(String::valueOf).collect(Collectors.joining(","));
    }

    /** The plan with the sort's keys as further columns, which are appended to *added*. */
    private static LogicalPlan widened(LogicalPlan plan, List<Expression> keys, List<NamedExpression> added) {
        if (plan instanceof Sort) {
            List<NamedExpression> columns = new ArrayList<>(Seqs.list(plan.output()));
            for (Expression key : keys) {
                var column = Expressions.alias(key, "onager_order_" + added.size());
                columns.add(column);
                added.add(column.toAttribute());
            }
            return Nodes.project(Seqs.seq(columns), plan);
        }
        LogicalPlan inner = widened(below(plan), keys, added);
        if (plan instanceof Project project) {
            List<NamedExpression> columns = new ArrayList<>(Seqs.list(project.projectList()));
            columns.addAll(added);
            return Nodes.project(Seqs.seq(columns), inner);
        }
        LogicalPlan before = below(plan);
        return plan.withNewChildren(Seqs.seq(Seqs.list(plan.children()).stream().map(child -> child == before ? inner : child).toList()));
    }
}
