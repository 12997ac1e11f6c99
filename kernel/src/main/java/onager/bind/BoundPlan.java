package onager.bind;

import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.regex.Pattern;
import onager.values.Seqs;
import org.apache.spark.sql.execution.InputAdapter;
import org.apache.spark.sql.execution.ReusedSubqueryExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.adaptive.QueryStageExec;
import org.apache.spark.sql.execution.exchange.BroadcastExchangeLike;
import org.apache.spark.sql.execution.exchange.ReusedExchangeExec;
import org.apache.spark.sql.execution.metric.SQLMetric;

/**
 * The operators of a plan as it was bound, and the metrics that its tasks report; or those of a plan that plain Spark has run.
 *
 * <p>*nodes* is the same wherever the same plan is bound in the same way: it has no ids of accumulators, RDDs or expressions. Each node is a
 * map {id, name, text, children: [id], metrics: [{index, name, type}]}; the children of a node, its subqueries last, have larger ids. A
 * metric that is known as soon as the plan is bound has a *value* in place of the index: what is below a broadcast or a subquery ran
 * before.
 */
public record BoundPlan(List<Map<String, Object>> nodes, Meters meters) {
    /** Which metrics tasks report: none, those that count rows, all. */
    public enum Wanted { OFF, ROWS, FULL }

    private static final int MAX_NODES = 1000;
    private static final int MAX_METRICS = 1000;
    /** More than is shown, so that a secret is not cut in the middle before it is redacted. */
    private static final int MAX_TEXT = 4096;
    private static final Set<String> ROWS = Set.of("numOutputRows", "pythonNumRowsReceived");
    private static final Set<String> KNOWN_OF_FILES = Set.of("numFiles", "filesSize");
    private static final Set<String> KNOWN_OF_BROADCAST = Set.of("numOutputRows", "dataSize");
    private static final Set<String> TYPES = Set.of("sum", "size", "timing", "nsTiming", "average");
    /** RDDs, ids of plans, and ids of expressions, of which Spark draws new ones for a subquery, for example. */
    private static final Pattern UNSTABLE =
            Pattern.compile("\\w*RDD\\[\\d+\\] at [^,\\]\\n]*(, )?|(, )?\\[(plan_)?id=#?\\d+\\]|#\\d+L?");

    /** Return the operators of *plan*, which was executed up to its RDD; null if there are too many, or no metrics are wanted. */
    static BoundPlan of(SparkPlan plan, Wanted wanted) {
        return wanted == Wanted.OFF ? null : new Maker(wanted, false).made(plan);
    }

    /** The operators of a plan that Spark has run, and what they measured, as `Meters.read` writes it. */
    public record Measured(List<Map<String, Object>> nodes, byte[] metrics) {}

    /**
     * Return the operators of *plan*, which has run as a whole, with all of their metrics, since those are in the driver anyway; null if there
     * are too many. Left out are metrics that only each task knows: the driver has sums, where a maximum is meant.
     */
    public static Measured measured(SparkPlan plan) {
        var maker = new Maker(Wanted.FULL, true);
        BoundPlan made = maker.made(plan);
        return made == null ? null : new Measured(made.nodes, made.meters.read(maker.metrics));
    }

    /** When an operator runs: in the tasks that report; before, so that its metrics are there; or before, but nobody has waited for it. */
    private enum Runs { IN_TASKS, BEFORE, UNKNOWN }

    private static final class Maker {
        private final Wanted wanted;
        private final boolean hasRun;
        private final List<Map<String, Object>> nodes = new ArrayList<>();
        private final Set<SparkPlan> seen = Collections.newSetFromMap(new IdentityHashMap<>());
        private final TreeMap<Long, Integer> keys = new TreeMap<>();
        private final List<SQLMetric> metrics = new ArrayList<>();

        /** *hasRun*: the plan, with all that is below broadcasts and subqueries, has run. */
        Maker(Wanted wanted, boolean hasRun) {
            this.wanted = wanted;
            this.hasRun = hasRun;
        }

        BoundPlan made(SparkPlan plan) {
            add(plan, Runs.IN_TASKS);
            return nodes.size() > MAX_NODES ? null : new BoundPlan(nodes, meters());
        }

        /** Return the operator that *plan* only wraps. */
        private SparkPlan unwrapped(SparkPlan plan) {
            SparkPlan inner = plan;
            while (true) {
                if (inner instanceof InputAdapter adapter) {
                    inner = adapter.child();
                } else if (inner instanceof AdaptiveSparkPlanExec adaptive) {
                    inner = adaptive.executedPlan();
                } else if (inner instanceof QueryStageExec stage) {
                    inner = stage.plan();
                } else if (inner instanceof ReusedExchangeExec reused && !seen.contains(reused.child())) {
                    inner = reused.child(); // of another stage: a broadcast that all stages share
                } else if (inner instanceof ReusedSubqueryExec reused && !seen.contains(reused.child())) {
                    inner = reused.child();
                } else {
                    return inner;
                }
            }
        }

        /** Add *wrapped* and all below it, and return its id. What occurs again has no children and no metrics then. */
        private int add(SparkPlan wrapped, Runs runs) {
            SparkPlan plan = unwrapped(wrapped);
            var node = new LinkedHashMap<String, Object>();
            var children = new ArrayList<Integer>();
            int id = nodes.size();
            nodes.add(node);
            node.put("id", id);
            node.put("name", plan.nodeName().strip());
            node.put("text", text(plan));
            node.put("children", children);
            boolean isNew = seen.add(plan) && nodes.size() <= MAX_NODES;
            Runs own = !hasRun && plan instanceof BroadcastExchangeLike broadcast ? runs(broadcast) : runs;
            node.put("metrics", isNew ? metrics(plan, own) : List.of());
            if (isNew) {
                Seqs.list(plan.children()).forEach(child -> children.add(add(child, own)));
                Seqs.list(plan.subqueries()).forEach(subquery -> children.add(add(subquery, hasRun ? runs : Runs.BEFORE)));
            }
            return id;
        }

        private static Runs runs(BroadcastExchangeLike broadcast) {
            return broadcast.relationFuture().isDone() ? Runs.BEFORE : Runs.UNKNOWN;
        }

        private static String text(SparkPlan plan) {
            String all = UNSTABLE.matcher(plan.simpleString(25)).replaceAll("");
            return all.length() > MAX_TEXT ? all.substring(0, MAX_TEXT) : all;
        }

        private List<Map<String, Object>> metrics(SparkPlan plan, Runs runs) {
            Set<String> known = plan instanceof BroadcastExchangeLike ? KNOWN_OF_BROADCAST : ROWS;
            var found = new TreeMap<String, SQLMetric>();
            Seqs.each(plan.metrics().iterator()).forEach(entry -> found.put(entry._1(), entry._2()));
            var out = new ArrayList<Map<String, Object>>();
            found.forEach((name, metric) -> {
                boolean isLeaf = plan.children().isEmpty();
                boolean isKnown = isLeaf && KNOWN_OF_FILES.contains(name) || runs == Runs.BEFORE && known.contains(name);
                boolean isWanted = runs == Runs.IN_TASKS && (wanted == Wanted.FULL || ROWS.contains(name))
                        && !(hasRun && isOfEachTask(name, metric));
                if (!TYPES.contains(metric.metricType()) || !(isKnown || isWanted)) {
                    return;
                }
                var entry = new LinkedHashMap<String, Object>();
                if (isKnown) {
                    entry.put("value", Math.max(0L, metric._value()));
                } else if (keys.containsKey(metric.id()) || keys.size() >= MAX_METRICS) {
                    return;
                } else {
                    entry.put("index", keys.size());
                    keys.put(metric.id(), 2 * keys.size() + (isOfEachTask(name, metric) ? 1 : 0));
                    metrics.add(metric);
                }
                entry.put("name", name);
                entry.put("type", metric.metricType());
                out.add(entry);
            });
            return out;
        }

        /** Return whether the maximum over tasks says more than the sum. */
        private static boolean isOfEachTask(String name, SQLMetric metric) {
            return name.equals("peakMemory") || metric.metricType().equals("average");
        }

        private Meters meters() {
            return new Meters(keys.keySet().stream().mapToLong(Long::longValue).toArray(),
                    keys.values().stream().mapToInt(Integer::intValue).toArray());
        }
    }
}
