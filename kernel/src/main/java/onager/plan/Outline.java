package onager.plan;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import onager.spark43.Lookups;
import onager.values.Seqs;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.PythonFuncExpression;
import org.apache.spark.sql.catalyst.optimizer.BuildRight$;
import org.apache.spark.sql.catalyst.plans.FullOuter$;
import org.apache.spark.sql.catalyst.plans.InnerLike;
import org.apache.spark.sql.catalyst.plans.RightOuter$;
import org.apache.spark.sql.execution.CoalesceExec;
import org.apache.spark.sql.execution.ColumnarToRowExec;
import org.apache.spark.sql.execution.InputAdapter;
import org.apache.spark.sql.execution.ReusedSubqueryExec;
import org.apache.spark.sql.execution.RowToColumnarExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SubqueryExec;
import org.apache.spark.sql.execution.WholeStageCodegenExec;
import org.apache.spark.sql.execution.adaptive.ShuffleQueryStageExec;
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec;
import org.apache.spark.sql.execution.columnar.InMemoryTableScanExec;
import org.apache.spark.sql.execution.exchange.ReusedExchangeExec;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec;
import org.apache.spark.sql.execution.joins.BaseJoinExec;
import org.apache.spark.sql.execution.joins.BroadcastNestedLoopJoinExec;
import org.apache.spark.sql.execution.python.MapInBatchExec;

/** All nodes of a physical plan, as the planner sees them. */
public final class Outline {
    private static final String PYTHON = MapInBatchExec.class.getPackageName() + ".";

    /** A Python function: *broadcasts* counts its broadcast variables; *hasAccumulator*: whether it refers to one of the user. */
    record Function(String name, int broadcasts, boolean hasAccumulator) {}

    /**
     * A node. *parent* is the place of the node above (-1 for the root), of which it is a "child" or a "subquery", or which is "reused" there;
     * *kind* is its simple class name, *isDeterministic* is said of all its expressions, *aggregatesInOrder* of an aggregate that depends on the
     * order of rows, and *particulars* are facts that depend on its class ("" for most).
     */
    record Node(int parent, String role, String kind, int planId, boolean isDeterministic, boolean runsPython, boolean aggregatesInOrder,
            String particulars, List<Function> functions) {}

    final List<Node> described = new ArrayList<>();
    final List<SparkPlan> nodes = new ArrayList<>();
    private final Set<Integer> seen = new HashSet<>();
    private final List<Reuse> reused = new ArrayList<>();

    /** The node at the place *by* reuses *plan*. */
    private record Reuse(int by, SparkPlan plan) {}

    private Outline() {}

    /** Lists the nodes of a plan and of its subqueries, parents first, without code generation and row/column transitions. */
    static Outline of(SparkPlan root) {
        var outline = new Outline();
        outline.walk(root, -1, "child");
        for (int i = 0; i < outline.reused.size(); i++) {
            Reuse entry = outline.reused.get(i);
            if (!outline.seen.contains(entry.plan.id())) {
                outline.walk(entry.plan, entry.by, "reused");
            }
        }
        return outline;
    }

    private void walk(SparkPlan wrapped, int parent, String role) {
        SparkPlan node = unwrapped(wrapped);
        int index = nodes.size();
        nodes.add(node);
        seen.add(node.id());
        boolean runsPython = node.getClass().getName().startsWith(PYTHON);
        described.add(new Node(parent, role, node.getClass().getSimpleName(), node.id(), isDeterministic(node), runsPython, mindsOrder(node),
                particulars(node), runsPython ? functions(node) : List.of()));
        if (node instanceof ReusedExchangeExec reuse) {
            reused.add(new Reuse(index, reuse.child()));
        }
        if (node instanceof ReusedSubqueryExec reuse) {
            reused.add(new Reuse(index, reuse.child()));
        } else {
            Seqs.list(node.children()).forEach(child -> walk(child, index, "child"));
        }
        Seqs.list(node.subqueries()).forEach(subquery -> walk(subquery, index, "subquery"));
    }

    /** Return the first node from *wrapped* down that is not code generation or a row/column transition. */
    static SparkPlan unwrapped(SparkPlan wrapped) {
        SparkPlan node = wrapped;
        while (node instanceof WholeStageCodegenExec || node instanceof InputAdapter || node instanceof ColumnarToRowExec
                || node instanceof RowToColumnarExec) {
            node = node.children().head();
        }
        return node;
    }

    private static boolean isDeterministic(SparkPlan node) {
        return Seqs.list(node.expressions()).stream().allMatch(Expression::deterministic);
    }

    private static boolean mindsOrder(SparkPlan node) {
        return node instanceof BaseAggregateExec aggregate && Seqs.list(aggregate.aggregateExpressions()).stream()
                .anyMatch(each -> Lookups.BY_ORDER.contains(each.aggregateFunction().getClass()));
    }

    private static String plain(Object scala) {
        return String.valueOf(scala).replace("$", "");
    }

    static String particulars(SparkPlan node) {
        if (node instanceof ShuffleExchangeExec exchange) {
            var partitioning = exchange.outputPartitioning();
            return plain(partitioning.getClass().getSimpleName()) + " " + partitioning.numPartitions() + " " + exchange.shuffleOrigin();
        } else if (node instanceof ShuffleQueryStageExec stage) {
            return plain(stage.outputPartitioning().getClass().getSimpleName()) + " " + stage.outputPartitioning().numPartitions() + " "
                    + stage.shuffle().shuffleOrigin() + " " + stage.id();
        } else if (node instanceof SubqueryExec subquery) {
            return subquery.name();
        } else if (node instanceof ReusedExchangeExec reuse) {
            return reuse.child().id() + " " + reuse.child().getClass().getSimpleName();
        } else if (node instanceof ReusedSubqueryExec reuse) {
            return "" + reuse.child().id();
        } else if (node instanceof InMemoryTableScanExec scan) {
            return "" + scan.relation().cachedPlan().id();
        } else if (node instanceof CoalesceExec coalesce) {
            return "" + coalesce.numPartitions();
        } else if (node instanceof BaseAggregateExec aggregate) {
            return aggregate.requiredChildDistributionExpressions().isDefined() ? "final" : "partial";
        } else if (node instanceof BroadcastNestedLoopJoinExec join) {
            return looksAtAllPartitions(join) ? "all" : "";
        } else if (node instanceof BaseJoinExec join) {
            return plain(join.joinType());
        } else if (node instanceof MapInBatchExec map) {
            return map.isBarrier() ? "barrier" : "";
        }
        return "";
    }

    /**
     * Whether a join emits each broadcast row at most once, depending on matches in all partitions. Spark finds these with a job over all
     * partitions, and returns the rows in additional partitions, as many as the process has cores.
     */
    private static boolean looksAtAllPartitions(BroadcastNestedLoopJoinExec join) {
        boolean buildsRight = join.buildSide() == BuildRight$.MODULE$;
        if (join.joinType() instanceof InnerLike) {
            return false;
        }
        return join.joinType() == RightOuter$.MODULE$ ? buildsRight : join.joinType() == FullOuter$.MODULE$ || !buildsRight;
    }

    private static List<Function> functions(SparkPlan node) {
        var found = new ArrayList<Function>();
        Seqs.list(node.expressions()).forEach(each -> addFunctions(each, found));
        return found;
    }

    private static void addFunctions(Expression expression, List<Function> found) {
        if (expression instanceof PythonFuncExpression function) {
            PythonFunction code = function.func();
            found.add(new Function(function.name().replace('\t', ' ').replace('\n', ' '), code.broadcastVars().size(),
                    command(code).contains("_deserialize_accumulator")));
        }
        Seqs.list(expression.children()).forEach(child -> addFunctions(child, found));
    }

    private static String command(PythonFunction code) {
        var bytes = new byte[code.command().size()];
        int i = 0;
        for (Object each : Seqs.list(code.command())) {
            bytes[i++] = (Byte) each;
        }
        return new String(bytes, StandardCharsets.ISO_8859_1);
    }
}
