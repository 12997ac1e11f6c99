package onager.spark43;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import onager.values.Seqs;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ScalarSubquery;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ReturnAnswer;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.catalyst.plans.physical.RangePartitioning;
import org.apache.spark.sql.catalyst.plans.physical.SinglePartition$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.ApplyColumnarRulesAndInsertTransitions;
import org.apache.spark.sql.execution.CollapseCodegenStages;
import org.apache.spark.sql.execution.QueryExecution$;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkPlan$;
import org.apache.spark.sql.execution.SubqueryExec;
import org.apache.spark.sql.execution.adaptive.AQEOptimizer;
import org.apache.spark.sql.execution.adaptive.LogicalQueryStage;
import org.apache.spark.sql.execution.adaptive.ShuffleQueryStageExec;
import org.apache.spark.sql.execution.adaptive.SimpleCostEvaluator;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.exchange.ENSURE_REQUIREMENTS$;
import org.apache.spark.sql.execution.exchange.Exchange;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec;
import org.apache.spark.sql.execution.exchange.ShuffleOrigin;
import org.apache.spark.sql.execution.reuse.ReuseExchangeAndSubquery$;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;

/** The parts of Spark's adaptive planning that can be used without its loop, which runs stages itself. */
public final class Adaptive {
    /** Rules that change nothing that is decided about a plan; the last two are applied when a stage is bound. */
    private static final Set<Class<?>> LATER = Set.of(ReuseExchangeAndSubquery$.class, ApplyColumnarRulesAndInsertTransitions.class,
            CollapseCodegenStages.class);

    private Adaptive() {}

    /**
     * Return a leaf for the output of stage *id*, which *exchange* carries. If it *isDone*, it has *bytes* and *rows* (-1: any number).
     * *buckets*: how many it wrote; a sorted run counts as *isSorted*.
     */
    public static SparkPlan stage(SparkContext sc, int id, Exchange exchange, int buckets, boolean isSorted, boolean isDone, long bytes, long rows) {
        Partitioning planned = exchange.outputPartitioning();
        boolean isAsPlanned = isSorted ? planned instanceof RangePartitioning
                : exchange instanceof ShuffleExchangeExec && !(planned instanceof RangePartitioning) && planned.numPartitions() == buckets;
        boolean isSingle = exchange instanceof ShuffleExchangeExec && buckets == 1;
        Partitioning made = isAsPlanned ? planned : isSingle ? SinglePartition$.MODULE$ : Nodes.unknown(buckets);
        ShuffleOrigin origin = exchange instanceof ShuffleExchangeExec shuffle ? shuffle.shuffleOrigin() : ENSURE_REQUIREMENTS$.MODULE$;
        var done = new StageExchange(exchange.output(), made, origin, bytes, rows);
        var stage = new ShuffleQueryStageExec(id, done, Nodes.placeholder(sc, exchange.output(), "stage " + id).canonicalized());
        if (isDone) {
            stage.resultOption().set(Option.apply(done.sizes()));
        }
        return stage;
    }

    /** Return the exchange that a leaf made by `stage` stands for, over *child*. */
    public static SparkPlan exchange(ShuffleQueryStageExec stage, SparkPlan child) {
        return new ShuffleExchangeExec(stage.outputPartitioning(), child, stage.shuffle().shuffleOrigin(), Option.empty(), false);
    }

    /** Return *top* in the place of *of* in a logical plan. */
    public static LogicalPlan logical(LogicalPlan of, SparkPlan top) {
        return new LogicalQueryStage(of, top);
    }

    /** Return the logical plan of which *node* was planned; null for what Spark added for a requirement. */
    public static LogicalPlan link(SparkPlan node) {
        var own = node.getTagValue(SparkPlan$.MODULE$.LOGICAL_PLAN_TAG());
        var found = own.isDefined() ? own : node.getTagValue(SparkPlan$.MODULE$.LOGICAL_PLAN_INHERITED_TAG());
        return found.isDefined() ? found.get() : null;
    }

    /** Return *plan* as Spark's rules for measured plans make it. */
    public static LogicalPlan optimized(SparkSession session, LogicalPlan plan) {
        var state = session.sessionState();
        plan.invalidateStatsCache();
        return new AQEOptimizer(state.conf(), state.adaptiveRulesHolder().runtimeOptimizerRules()).execute(plan);
    }

    /** Return the physical plan of *plan*, with every exchange, none of which is reused. */
    public static SparkPlan planned(SparkSession session, LogicalPlan plan) {
        return prepared(session, session.sessionState().planner().plan(new ReturnAnswer(plan)).next());
    }

    /** Return *sparkPlan* with every exchange, none of which is reused. */
    public static SparkPlan prepared(SparkSession session, SparkPlan sparkPlan) {
        SparkPlan out = sparkPlan;
        for (var rule : Seqs.list(QueryExecution$.MODULE$.preparations(session, Option.empty(), false))) {
            out = LATER.contains(rule.getClass()) ? out : rule.apply(out);
        }
        return out;
    }

    /** Return *plan* with each exchange and subquery that occurs more than once made once. */
    public static SparkPlan withReuse(SparkPlan plan) {
        return ReuseExchangeAndSubquery$.MODULE$.apply(plan);
    }

    /** Return a number that is below 0 if *plan* is cheaper than *other*, and above 0 if it is dearer. */
    public static int compare(SparkPlan plan, SparkPlan other) {
        var evaluator = new SimpleCostEvaluator(false, false);
        return evaluator.evaluateCost(plan).compare(evaluator.evaluateCost(other));
    }

    /** Return the subquery *name* over *child*. */
    public static SubqueryExec subquery(String name, SparkPlan child) {
        return new SubqueryExec(name, child, Option.empty());
    }

    /** Return the value of the only row and column of *plan*. */
    public static Expression subquery(LogicalPlan plan, ExprId id) {
        return new ScalarSubquery(plan, Seqs.seq(), id, Seqs.seq(), Option.empty(), Option.empty(), Option.empty());
    }

    public static LogicalPlan relation(FileIndex files, StructType dataSchema, FileFormat format, Map<String, String> options,
            SparkSession session, List<AttributeReference> output) {
        var relation = new HadoopFsRelation(files, files.partitionSchema(), dataSchema, Option.empty(), format, options, session);
        return new LogicalRelation(relation, Seqs.seq(new ArrayList<>(output)), Option.empty(), false, Option.empty());
    }

    public static LogicalPlan nothing(Seq<Attribute> output) {
        return new LocalRelation(output, Seqs.seq(), false, Option.empty());
    }

    /** Return up to how many bytes Spark broadcasts in *session*. */
    public static long mostBroadcast(SparkSession session) {
        return session.sessionState().conf().autoBroadcastJoinThreshold();
    }
}
