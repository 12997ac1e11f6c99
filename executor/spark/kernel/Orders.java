package onager.kernel;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Offset;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.WithCTE;
import scala.Option;
import scala.collection.immutable.Seq;

/** By what a query orders its result, as columns: two results in that order agree in them row by row, whatever ties do. */
public final class Orders {
    private Orders() {}

    /**
     * Look at an analyzed query.
     *
     * @return {facts, plan}: facts is "limited|whole tab keys", keys being the places of the columns by which it orders, separated by
     *     commas, or empty; plan is the query, with columns added at its end for keys that its output lacks
     */
    public static Object[] of(LogicalPlan query) {
        boolean limited = false;
        LogicalPlan at = query;
        while (at != null && !(at instanceof Sort)) {
            limited = limited || at instanceof GlobalLimit || at instanceof LocalLimit || at instanceof Offset;
            at = below(at);
        }
        String kind = limited ? "limited\t" : "whole\t";
        Sort sort = (Sort) at;
        if (sort == null || !sort.global()) {
            return new Object[] {kind, query};
        }
        List keys = new ArrayList();
        for (int i = 0; i < sort.order().size(); i++) {
            Expression key = ((SortOrder) sort.order().apply(i)).child();
            if (!key.deterministic()) {
                return new Object[] {kind, query};
            }
            keys.add(key);
        }
        String places = places(query, keys);
        if (places != null) {
            return new Object[] {kind + places, query};
        }
        List added = new ArrayList();
        LogicalPlan wider = widened(query, keys, added);
        return new Object[] {kind + places(wider, added), wider};
    }

    /** The only input of an operator that keeps rows in their order, or null. */
    private static LogicalPlan below(LogicalPlan plan) {
        if (plan instanceof WithCTE) {
            return ((WithCTE) plan).plan();
        }
        boolean keeps = plan instanceof Project || plan instanceof SubqueryAlias || plan instanceof GlobalLimit || plan instanceof LocalLimit
                || plan instanceof Offset;
        return keeps ? (LogicalPlan) plan.children().apply(0) : null;
    }

    /** Where the output has the keys, or null when it lacks one. */
    private static String places(LogicalPlan plan, List keys) {
        StringBuilder places = new StringBuilder();
        for (int k = 0; k < keys.size(); k++) {
            int place = -1;
            for (int i = 0; i < plan.output().size() && keys.get(k) instanceof Attribute; i++) {
                if (((Attribute) plan.output().apply(i)).exprId().equals(((Attribute) keys.get(k)).exprId())) {
                    place = i;
                }
            }
            if (place < 0) {
                return null;
            }
            places.append(k == 0 ? "" : ",").append(place);
        }
        return places.toString();
    }

    /** The same rows with the sort's keys as further columns; these go into *added*. */
    private static LogicalPlan widened(LogicalPlan plan, List keys, List added) {
        if (plan instanceof Sort) {
            List columns = items(plan.output());
            for (int k = 0; k < keys.size(); k++) {
                Alias key = new Alias((Expression) keys.get(k), "onager_order_" + k, NamedExpression$.MODULE$.newExprId(), PlanTools.noItems(),
                        Option.empty(), PlanTools.noItems());
                columns.add(key);
                added.add(key.toAttribute());
            }
            return new Project(PlanTools.seq(columns), plan);
        }
        LogicalPlan inner = widened(below(plan), keys, added);
        if (plan instanceof Project) {
            List columns = items(((Project) plan).projectList());
            columns.addAll(added);
            return new Project(PlanTools.seq(columns), inner);
        }
        List children = items(plan.children());
        for (int i = 0; i < children.size(); i++) {
            if (children.get(i) == below(plan)) {
                children.set(i, inner);
            }
        }
        return (LogicalPlan) plan.withNewChildren(PlanTools.seq(children));
    }

    private static List items(Seq seq) {
        return new ArrayList(scala.jdk.javaapi.CollectionConverters.asJava(seq));
    }
}
