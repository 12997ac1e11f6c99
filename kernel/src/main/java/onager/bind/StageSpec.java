package onager.bind;

import java.util.List;
import onager.rows.InputSpec;

/**
 * Describes a stage to bind.
 *
 * @param group the job group in which its broadcasts and subqueries run
 * @param ordered whether the order of its output rows matters
 * @param sparing whether to use as few broadcasts as possible
 * @param metrics the metrics that its tasks report; null: none
 * @param inputs its inputs; null for leaves
 */
public record StageSpec(String job, String group, int partitions, boolean ordered, boolean sparing, BoundPlan.Wanted metrics,
        List<InputSpec> inputs) {
    public StageSpec {
        metrics = metrics == null ? BoundPlan.Wanted.OFF : metrics;
    }

    boolean hasStreams() {
        return inputs.stream().anyMatch(input -> input != null && input.isStream());
    }
}
