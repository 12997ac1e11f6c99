package onager.bind;

import java.util.List;
import onager.rows.BucketRead;
import onager.rows.InputSpec;

/**
 * Describes a stage to bind.
 *
 * @param group the job group in which its broadcasts and subqueries run
 * @param ordered whether the order of its output rows matters
 * @param sparing whether to use as few broadcasts as possible, and no other hash joins: what sorts can spill
 * @param metrics the metrics that its tasks report; null: none
 * @param inputs its inputs, then those of each fused stage; null for leaves
 * @param reads what each task reads of the inputs by bucket; null: as the stage was planned
 * @param fused the index of the first input of each stage that its only task computes, too; null: none
 */
public record StageSpec(String job, String group, int partitions, boolean ordered, boolean sparing, BoundPlan.Wanted metrics,
        List<InputSpec> inputs, List<BucketRead> reads, List<Integer> fused) {
    public StageSpec {
        metrics = metrics == null ? BoundPlan.Wanted.OFF : metrics;
        fused = fused == null ? List.of() : fused;
    }

    boolean isFused() {
        return !fused.isEmpty();
    }

    boolean hasStreams() {
        return inputs.stream().anyMatch(input -> input != null && input.isStream());
    }
}
