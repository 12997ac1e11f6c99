package onager.plan;

import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.UnaryOperator;
import onager.failure.RefusedException;
import onager.spark43.Adaptive;
import onager.spark43.Expressions;
import onager.spark43.Nodes;
import onager.values.Json;
import onager.values.Seqs;
import onager.values.Serialization;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.ScalarSubquery;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.EmptyRelation;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation;
import org.apache.spark.sql.catalyst.plans.logical.Range;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.ExecSubqueryExpression;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.RDDScanExec;
import org.apache.spark.sql.execution.ReusedSubqueryExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SubqueryExec;
import org.apache.spark.sql.execution.adaptive.LogicalQueryStage;
import org.apache.spark.sql.execution.adaptive.ShuffleQueryStageExec;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.exchange.Exchange;
import org.apache.spark.sql.execution.exchange.ReusedExchangeExec;

/**
 * What the rest of a query is planned again from, in any process: the logical plan with its files, the physical plan without leaves, which
 * logical plan each physical node was planned of, and the stage that each exchange ends.
 */
@SuppressWarnings("serial") // Spark's plans are serialisable, and do not say so
public final class Frame implements Serializable {
    /** The name of leaves in the physical plan, which nothing reads. */
    static final String LEAF = "leaf of a frame";

    final LogicalPlan logical;
    final SparkPlan physical;
    /** Nodes of the physical plan, and by place the logical plans that they were planned of. */
    final ArrayList<SparkPlan> nodes = new ArrayList<>();
    final ArrayList<LogicalPlan> links = new ArrayList<>();
    /** Exchanges in the physical plan, and by place the stages that they end. */
    final ArrayList<SparkPlan> exchanges = new ArrayList<>();
    final ArrayList<Integer> stages = new ArrayList<>();

    /** The plans of subqueries in expressions of the logical plan. */
    final HashMap<ExprId, LogicalPlan> subqueries = new HashMap<>();

    private final transient IdentityHashMap<LogicalPlan, LogicalPlan> known = new IdentityHashMap<>();
    private final transient SparkContext sc;
    private final transient Map<SparkPlan, Integer> stageOf;

    private Frame(SparkContext sc, LogicalPlan logical, SparkPlan physical, Map<SparkPlan, Integer> stageOf) {
        this.sc = sc;
        this.stageOf = stageOf;
        this.logical = stored(logical);
        this.physical = stored(physical);
    }

    /**
     * Writes the frame of a query that was planned as *executed* to the file *target*. *exchanges*: the stages that exchanges of *executed*
     * end, by these' ids, as JSON.
     *
     * @return why there can be none, or ""
     */
    public static String write(SparkSession session, QueryExecution query, SparkPlan executed, String exchanges, String target)
            throws IOException {
        SparkPlan raw = Adaptive.prepared(session, query.sparkPlan().clone());
        return write(session.sparkContext(), Adaptive.link(raw), raw, executed, exchanges, target);
    }

    static String write(SparkContext sc, LogicalPlan logical, SparkPlan raw, SparkPlan executed, String exchanges, String target)
            throws IOException {
        var byId = new HashMap<Integer, Integer>();
        Json.tree(exchanges).properties().forEach(each -> byId.put(Integer.valueOf(each.getKey()), each.getValue().asInt()));
        var stageOf = new IdentityHashMap<SparkPlan, Integer>();
        try {
            pair(raw, executed, byId, stageOf);
            Serialization.write(target, new Frame(sc, logical, raw, stageOf));
        } catch (RefusedException e) {
            return e.getMessage();
        } catch (java.io.NotSerializableException e) {
            return e.getMessage() + " cannot be stored";
        }
        return "";
    }

    /** Find the stages of the exchanges in *raw*, which is *executed* before anything was reused. */
    private static void pair(SparkPlan raw, SparkPlan executed, Map<Integer, Integer> byId, Map<SparkPlan, Integer> stageOf) {
        SparkPlan node = Outline.unwrapped(raw);
        SparkPlan other = Outline.unwrapped(executed);
        other = other instanceof ReusedExchangeExec reuse ? reuse.child() : other;
        if (node.getClass() != other.getClass() || node.children().size() != other.children().size()) {
            throw new RefusedException("it is planned otherwise a second time: " + node.nodeName() + ", " + other.nodeName());
        }
        if (node instanceof Exchange && byId.get(other.id()) != null) {
            stageOf.put(node, byId.get(other.id()));
        }
        for (int i = 0; i < node.children().size(); i++) {
            pair(node.children().apply(i), other.children().apply(i), byId, stageOf);
        }
    }

    /** Whether *node* stands for a leaf, or a subquery, of which only the columns are known. */
    static boolean isLeaf(SparkPlan node) {
        return node instanceof RDDScanExec scan && scan.name().equals(LEAF);
    }

    // ------------------------------------------------------------ logical plans

    private LogicalPlan stored(LogicalPlan plan) {
        LogicalPlan made = known.get(plan);
        if (made == null) {
            made = storedAnew(plan);
            known.put(plan, made);
        }
        return made;
    }

    private LogicalPlan storedAnew(LogicalPlan plan) {
        if (plan instanceof LogicalQueryStage stage) {
            return stored(stage.logicalPlan());
        }
        if (plan instanceof EmptyRelation) {
            return Adaptive.nothing(plan.output());
        }
        if (plan instanceof LogicalRelation files && files.relation() instanceof HadoopFsRelation relation) {
            return new StoredRelation(files, relation);
        }
        boolean isPlain = plan instanceof LocalRelation || plan instanceof Range || plan instanceof OneRowRelation;
        if (plan.children().isEmpty() && !isPlain && !(plan instanceof StoredRelation)) {
            throw new RefusedException(plan.nodeName() + " cannot be stored");
        }
        return withoutSubqueries(changed(plan, this::stored));
    }

    /** Returns *plan* with *change* applied to its children. */
    static LogicalPlan changed(LogicalPlan plan, UnaryOperator<LogicalPlan> change) {
        List<LogicalPlan> made = Seqs.list(plan.children()).stream().map(change).toList();
        return made.isEmpty() ? plan : plan.withNewChildren(Seqs.seq(made));
    }

    /** A subquery in an expression cannot be stored; a column of its id stands for it. */
    private LogicalPlan withoutSubqueries(LogicalPlan plan) {
        if (plan.subqueries().isEmpty()) {
            return plan;
        }
        return plan.transformExpressions(Seqs.change(SubqueryExpression.class, each -> {
            if (!(each instanceof ScalarSubquery scalar) || !scalar.outerAttrs().isEmpty()) {
                throw new RefusedException(each.nodeName() + " cannot be stored");
            }
            subqueries.put(each.exprId(), stored(each.plan()));
            return Expressions.attribute("subquery", each.dataType(), each.exprId());
        }));
    }

    // ------------------------------------------------------------ physical plans

    private SparkPlan stored(SparkPlan node) {
        SparkPlan made;
        if (node instanceof ShuffleQueryStageExec stage) {
            made = Adaptive.exchange(stage, Nodes.placeholder(sc, stage.output(), LEAF));
            exchanges.add(made);
            stages.add(stage.id());
        } else if (node.children().isEmpty()) {
            made = Nodes.placeholder(sc, node.output(), LEAF);
        } else {
            made = withoutSubqueries(node).withNewChildren(Seqs.seq(Seqs.list(node.children()).stream().map(this::stored).toList()));
        }
        LogicalPlan link = Adaptive.link(node);
        if (link != null && known.containsKey(link)) {
            nodes.add(made);
            links.add(known.get(link));
        }
        if (stageOf.containsKey(node)) {
            exchanges.add(made);
            stages.add(stageOf.get(node));
        }
        return made;
    }

    /** Subqueries are planned from the logical plan again; here only their names matter. */
    private SparkPlan withoutSubqueries(SparkPlan node) {
        if (node.subqueries().isEmpty()) {
            return node;
        }
        return node.transformExpressions(Seqs.change(ExecSubqueryExpression.class, each -> {
            SparkPlan plan = (SparkPlan) each.plan();
            SparkPlan of = plan instanceof ReusedSubqueryExec reuse ? reuse.child() : plan;
            if (!(of instanceof SubqueryExec subquery)) {
                throw new RefusedException(of.nodeName() + " depends on a broadcast of the plan");
            }
            return each.withNewPlan(Adaptive.subquery(subquery.name(), Nodes.placeholder(sc, subquery.child().output(), LEAF)));
        }));
    }
}
