package onager.plan;

import java.io.IOException;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeSet;
import java.util.function.Predicate;
import onager.failure.RefusedException;
import onager.spark43.Adaptive;
import onager.spark43.Nodes;
import onager.values.Json;
import onager.values.Seqs;
import onager.values.Serialization;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.ShuffleQueryStageExec;
import org.apache.spark.sql.execution.exchange.BroadcastExchangeExec;
import org.apache.spark.sql.execution.exchange.Exchange;

/** Plans the rest of a query again from its `Frame`, with what the stages that have begun measured. */
public final class Replanning {
    /** A stage that has begun. *rows* below 0: any number. */
    public record BegunStage(int stage, boolean done, boolean sorted, int buckets, long bytes, long rows) {}

    private final SparkSession session;
    private final Frame frame;
    private final IdentityHashMap<SparkPlan, LogicalPlan> links = new IdentityHashMap<>();
    private final Map<Integer, BegunStage> begun = new LinkedHashMap<>();
    private final Map<SparkPlan, Integer> stageOf = new IdentityHashMap<>();
    private final List<SparkPlan> put = new ArrayList<>();
    private final TreeSet<Integer> putIn = new TreeSet<>();
    private final SparkPlan before;
    private final LogicalPlan optimized;
    private final SparkPlan raw;
    private final SparkPlan after;
    private boolean mayCostMore;

    /** Plan in *session*, which must be active, from *stored*; *stages*: those that have begun, as JSON of `BegunStage`. */
    public Replanning(SparkSession session, byte[] stored, String stages) throws Exception {
        this.session = session;
        for (BegunStage each : Json.read(stages, BegunStage[].class)) {
            begun.put(each.stage, each);
        }
        this.frame = Serialization.decode(stored);
        var live = new IdentityHashMap<LogicalPlan, LogicalPlan>();
        LogicalPlan logical = live(frame.logical, live);
        for (int i = 0; i < frame.exchanges.size(); i++) {
            stageOf.put(frame.exchanges.get(i), frame.stages.get(i));
        }
        var linked = new IdentityHashMap<SparkPlan, LogicalPlan>();
        for (int i = 0; i < frame.nodes.size(); i++) {
            linked.put(frame.nodes.get(i), live.get(frame.links.get(i)));
        }
        this.before = live(frame.physical, linked);
        this.optimized = Adaptive.optimized(session, withStages(logical));
        this.raw = Adaptive.planned(session, optimized);
        if (holds(raw, node -> Frame.isLeaf(node))) {
            throw new RefusedException("a source is part of what has begun");
        }
        this.after = Adaptive.withReuse(raw);
    }

    /** The new plan, for the cutter. */
    public SparkPlan plan() {
        return after;
    }

    /**
     * Tell, as JSON: {put_in: the stages that it reads or hides, changed, dearer, before: {operator: count}, after}. *dearer*: by Spark's
     * measure, unless a broadcast that turned out too large is given up.
     */
    public String facts() throws IOException {
        var facts = new LinkedHashMap<String, Object>();
        facts.put("put_in", List.copyOf(putIn));
        facts.put("changed", !shape(before).equals(shape(raw)));
        facts.put("dearer", !mayCostMore && Adaptive.compare(raw, before) > 0);
        facts.put("before", counts(before));
        facts.put("after", counts(raw));
        return Json.text(facts);
    }

    /** Write the frame of the new plan; see `Frame.write`. */
    public String write(String exchanges, String target) throws IOException {
        return Frame.write(session.sparkContext(), optimized, raw, after, exchanges, target);
    }

    // ------------------------------------------------------------ making the frame live

    private LogicalPlan live(LogicalPlan plan, IdentityHashMap<LogicalPlan, LogicalPlan> made) {
        LogicalPlan known = made.get(plan);
        if (known == null) {
            known = plan instanceof StoredRelation stored ? relation(stored) : withSubqueries(Frame.changed(plan, each -> live(each, made)), made);
            made.put(plan, known);
        }
        return known;
    }

    private LogicalPlan withSubqueries(LogicalPlan plan, IdentityHashMap<LogicalPlan, LogicalPlan> made) {
        if (frame.subqueries.isEmpty()) {
            return plan;
        }
        return plan.transformExpressions(Seqs.change(AttributeReference.class, each -> {
            LogicalPlan subquery = frame.subqueries.get(each.exprId());
            return subquery == null ? each : Adaptive.subquery(live(subquery, made), each.exprId());
        }));
    }

    private LogicalPlan relation(StoredRelation stored) {
        try {
            return stored.relation(session);
        } catch (IOException | ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Return *node* of the frame, made anew because transient fields are null after decoding, with stages put in. */
    private SparkPlan live(SparkPlan node, Map<SparkPlan, LogicalPlan> linked) {
        BegunStage stage = begun.get(stageOf.getOrDefault(node, 0));
        SparkPlan made;
        if (stage != null) {
            var exchange = (Exchange) node;
            made = Adaptive.stage(session.sparkContext(), stage.stage, exchange, stage.buckets, stage.sorted, stage.done, stage.bytes, stage.rows);
            links.put(made, linkBelow(node, linked));
            put.add(made);
            hide(node);
            boolean isLarge = stage.done && stage.bytes > Adaptive.mostBroadcast(session);
            mayCostMore = mayCostMore || (isLarge && exchange instanceof BroadcastExchangeExec);
            return made;
        }
        if (node.children().isEmpty()) {
            made = Nodes.placeholder(session.sparkContext(), node.output(), Frame.LEAF);
        } else {
            made = node.withNewChildren(Seqs.seq(Seqs.list(node.children()).stream().map(child -> live(child, linked)).toList()));
        }
        LogicalPlan link = linked.get(node);
        if (link != null) {
            links.put(made, link);
        }
        return made;
    }

    private static LogicalPlan linkBelow(SparkPlan exchange, Map<SparkPlan, LogicalPlan> linked) {
        SparkPlan node = exchange;
        while (linked.get(node) == null && !node.children().isEmpty()) {
            node = node.children().head();
        }
        return linked.get(node);
    }

    private void hide(SparkPlan exchange) {
        Integer stage = stageOf.get(exchange);
        if (stage != null) {
            putIn.add(stage);
        }
        Seqs.list(exchange.children()).forEach(this::hide);
    }

    /** Return *plan* with what leads to each stage replaced by the stage, and what was planned above it of the same logical plan. */
    private LogicalPlan withStages(LogicalPlan plan) {
        var replaced = new IdentityHashMap<LogicalPlan, LogicalPlan>();
        for (SparkPlan stage : put) {
            LogicalPlan link = links.get(stage);
            if (link != null && !replaced.containsKey(link)) {
                SparkPlan top = topMost(before, link, stage);
                if (holds(top, node -> !node.subqueries().isEmpty())) {
                    throw new RefusedException("a subquery is part of what has begun");
                }
                replaced.put(link, Adaptive.logical(link, top));
            }
        }
        return replaced(plan, replaced);
    }

    private static LogicalPlan replaced(LogicalPlan plan, Map<LogicalPlan, LogicalPlan> by) {
        LogicalPlan found = by.get(plan);
        return found != null ? found : Frame.changed(plan, each -> replaced(each, by));
    }

    private SparkPlan topMost(SparkPlan node, LogicalPlan link, SparkPlan stage) {
        if (node == stage || links.get(node) == link) {
            return node;
        }
        for (SparkPlan child : Seqs.list(node.children())) {
            SparkPlan found = topMost(child, link, stage);
            if (found != null) {
                return found;
            }
        }
        return null;
    }

    private static boolean holds(SparkPlan plan, Predicate<SparkPlan> wanted) {
        return wanted.test(plan) || Seqs.list(plan.children()).stream().anyMatch(child -> holds(child, wanted));
    }

    // ------------------------------------------------------------ comparing

    private static String shape(SparkPlan node) {
        if (node instanceof ShuffleQueryStageExec stage) {
            return "stage " + stage.id();
        }
        if (node.children().isEmpty()) {
            return "leaf";
        }
        return node.getClass().getSimpleName() + " " + Outline.particulars(node) + Seqs.list(node.children()).stream().map(Replanning::shape).toList();
    }

    private static Map<String, Integer> counts(SparkPlan plan) {
        var counts = new LinkedHashMap<String, Integer>();
        count(plan, counts);
        return counts;
    }

    private static void count(SparkPlan node, Map<String, Integer> counts) {
        counts.merge(node.getClass().getSimpleName(), 1, Integer::sum);
        Seqs.list(node.children()).forEach(child -> count(child, counts));
    }
}
