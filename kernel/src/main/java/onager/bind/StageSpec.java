package onager.bind;

import java.util.List;
import onager.rows.InputSpec;

/**
 * What is said of a stage that is to be bound.
 *
 * @param group the job group in which its broadcasts and subqueries run
 * @param ordered whether the order of the rows matters
 * @param sparing whether to broadcast only what has to be
 * @param inputs null where an input is a leaf
 */
public record StageSpec(String job, String group, int partitions, boolean ordered, boolean sparing, List<InputSpec> inputs) {
    boolean hasStreams() {
        return inputs.stream().anyMatch(input -> input != null && input.isStream());
    }
}
