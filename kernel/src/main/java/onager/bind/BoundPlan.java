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
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.exchange.BroadcastExchangeLike;
import org.apache.spark.sql.execution.metric.SQLMetric;

/**
 * The operators of a plan as it was bound, and the metrics that its tasks report.
 *
 * <p>*nodes* is the same wherever the same plan is bound in the same way: it has neither ids of accumulators nor of RDDs. Each node is a
 * map {id, name, text, children: [id], metrics: [{index, name, type}]}; the children of a node have larger ids. A metric that is known as
 * soon as the plan is bound has a *value* in place of the index. Below a broadcast there are no metrics: it ran before.
 */
public record BoundPlan(List<Map<String, Object>> nodes, Meters meters) {
    /** Which metrics tasks report: none, those that count rows, all. */
    public enum Wanted { OFF, ROWS, FULL }

    private static final int MOST_NODES = 1000;
    private static final int MOST_METRICS = 1000;
    /** More than is shown, so that a secret is not cut in the middle before it is redacted. */
    private static final int MOST_TEXT = 4096;
    private static final Set<String> ROWS = Set.of("numOutputRows", "pythonNumRowsReceived");
    private static final Set<String> KNOWN_WHEN_BOUND = Set.of("numFiles", "filesSize");
    private static final Set<String> TYPES = Set.of("sum", "size", "timing", "nsTiming", "average");
    private static final Pattern UNSTABLE = Pattern.compile("\\w*RDD\\[\\d+\\] at [^,\\]\\n]*(, )?|(, )?\\[(plan_)?id=#?\\d+\\]");

    /** Return the operators of *plan*, which was executed up to its RDD; null if there are too many, or no metrics are wanted. */
    static BoundPlan of(SparkPlan plan, Wanted wanted) {
        if (wanted == Wanted.OFF) {
            return null;
        }
        var maker = new Maker(wanted);
        maker.add(plan, true);
        return maker.nodes.size() > MOST_NODES ? null : new BoundPlan(maker.nodes, maker.meters());
    }

    private static final class Maker {
        private final Wanted wanted;
        private final List<Map<String, Object>> nodes = new ArrayList<>();
        private final Set<SparkPlan> seen = Collections.newSetFromMap(new IdentityHashMap<>());
        private final TreeMap<Long, Integer> keys = new TreeMap<>();

        Maker(Wanted wanted) {
            this.wanted = wanted;
        }

        /** Add *plan* and all below it, and return its id; *runs*: tasks run it. What occurs again has no children and no metrics then. */
        int add(SparkPlan plan, boolean runs) {
            if (plan instanceof InputAdapter adapter) {
                return add(adapter.child(), runs);
            }
            var node = new LinkedHashMap<String, Object>();
            var children = new ArrayList<Integer>();
            int id = nodes.size();
            nodes.add(node);
            node.put("id", id);
            node.put("name", plan.nodeName().strip());
            node.put("text", text(plan));
            node.put("children", children);
            boolean isNew = seen.add(plan) && nodes.size() <= MOST_NODES;
            node.put("metrics", isNew && runs ? metrics(plan) : List.of());
            if (isNew) {
                boolean isRunBelow = runs && !(plan instanceof BroadcastExchangeLike);
                Seqs.list(plan.children()).forEach(child -> children.add(add(child, isRunBelow)));
            }
            return id;
        }

        private static String text(SparkPlan plan) {
            String all = UNSTABLE.matcher(plan.simpleString(25)).replaceAll("");
            return all.length() > MOST_TEXT ? all.substring(0, MOST_TEXT) : all;
        }

        private List<Map<String, Object>> metrics(SparkPlan plan) {
            var found = new TreeMap<String, SQLMetric>();
            Seqs.each(plan.metrics().iterator()).forEach(entry -> found.put(entry._1(), entry._2()));
            var out = new ArrayList<Map<String, Object>>();
            found.forEach((name, metric) -> {
                boolean isKnown = KNOWN_WHEN_BOUND.contains(name) && plan.children().isEmpty();
                if (!TYPES.contains(metric.metricType()) || !(isKnown || wanted == Wanted.FULL || ROWS.contains(name))) {
                    return;
                }
                var entry = new LinkedHashMap<String, Object>();
                if (isKnown) {
                    entry.put("value", Math.max(0L, metric._value()));
                } else if (keys.containsKey(metric.id()) || keys.size() >= MOST_METRICS) {
                    return;
                } else {
                    boolean isMaximum = name.equals("peakMemory") || metric.metricType().equals("average");
                    entry.put("index", keys.size());
                    keys.put(metric.id(), 2 * keys.size() + (isMaximum ? 1 : 0));
                }
                entry.put("name", name);
                entry.put("type", metric.metricType());
                out.add(entry);
            });
            return out;
        }

        Meters meters() {
            return new Meters(keys.keySet().stream().mapToLong(Long::longValue).toArray(),
                    keys.values().stream().mapToInt(Integer::intValue).toArray());
        }
    }
}
