package onager.bind;

import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import onager.plan.Fragments;
import onager.rows.InputSpec;
import onager.spark43.Expressions;
import onager.spark43.Nodes;
import onager.values.Seqs;
import onager.values.Serialization;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.execution.BaseSubqueryExec;
import org.apache.spark.sql.execution.ExecSubqueryExpression;
import org.apache.spark.sql.execution.SparkPlan;
import scala.collection.immutable.Seq;

/**
 * Composes the fragments of fused stages: each placeholder for the output of a fused stage becomes that stage's fragment. What is left are
 * placeholders for what is read from outside, numbered through all of the fragments.
 */
final class Fusion {
    private final SparkContext sc;
    private final StageSpec spec;
    private final List<SparkPlan> fragments = new ArrayList<>();

    /** *fragments* of the fused stages, encoded, in the order of *spec*. */
    Fusion(SparkContext sc, StageSpec spec, List<byte[]> fragments) throws Exception {
        this.sc = sc;
        this.spec = spec;
        for (byte[] each : fragments) {
            this.fragments.add(Serialization.decode(each));
        }
    }

    /** Return the stage's own decoded *fragment* with those of the fused stages in it. */
    SparkPlan composed(SparkPlan fragment) {
        return new Part(0).node(fragment);
    }

    /** One of the fragments, of which the first input has the index *first*. */
    private final class Part {
        private final int first;
        private final Map<SparkPlan, SparkPlan> made = new IdentityHashMap<>(); // a broadcast that occurs twice stays one

        Part(int first) {
            this.first = first;
        }

        SparkPlan node(SparkPlan plan) {
            SparkPlan known = made.get(plan);
            if (known == null) {
                known = anew(plan);
                made.put(plan, known);
            }
            return known;
        }

        private SparkPlan anew(SparkPlan plan) {
            int index = Binder.index(plan);
            if (index >= 0) {
                InputSpec input = spec.inputs().get(first + index);
                return input != null && input.fused() != null
                        ? as(plan.output(), fused(input.fused()))
                        : Nodes.placeholder(sc, plan.output(), Binder.PLACEHOLDER + (first + index));
            }
            var children = new ArrayList<SparkPlan>();
            Seqs.list(plan.children()).forEach(child -> children.add(node(child)));
            SparkPlan out = Fragments.withChildren(plan, children);
            if (!out.subqueries().isEmpty()) {
                out = out.transformExpressions(Seqs.change(ExecSubqueryExpression.class,
                        subquery -> subquery.withNewPlan((BaseSubqueryExec) node((SparkPlan) subquery.plan()))));
            }
            return out;
        }
    }

    private SparkPlan fused(int index) {
        return new Part(spec.fused().get(index)).node(fragments.get(index));
    }

    /** Return *plan* with its columns under the ids of *output*, which differ where an exchange is reused. */
    private static SparkPlan as(Seq<Attribute> output, SparkPlan plan) {
        List<Attribute> wanted = Seqs.list(output);
        List<Attribute> given = Seqs.list(plan.output());
        if (wanted.size() != given.size()) {
            throw new IllegalStateException(wanted.size() + " columns are read of a fused stage that has " + given.size());
        }
        boolean isSame = true;
        var columns = new ArrayList<NamedExpression>();
        for (int i = 0; i < wanted.size(); i++) {
            Attribute as = wanted.get(i);
            boolean fits = as.exprId().equals(given.get(i).exprId());
            columns.add(fits ? given.get(i) : Expressions.renamed(given.get(i), as));
            isSame = isSame && fits;
        }
        return isSame ? plan : Nodes.project(Seqs.<NamedExpression>seq(columns), plan);
    }
}
