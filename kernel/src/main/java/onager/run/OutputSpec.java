package onager.run;

import java.util.List;
import java.util.Map;

/**
 * Describes the output of a stage.
 *
 * @param directory the stage's directory below the exchange directory
 * @param samples the maximum number of sampled keys of a sorted run; null: rows are assigned by a bucket expression, or in turn
 * @param names the column names of a result; null: those of the plan
 * @param format the format of a sink, like *options* and *staging*
 * @param partitionBy the columns of a sink that become directories; null: none
 * @param bucketed the buckets of a sink's files; null: none
 */
public record OutputSpec(Layout layout, String directory, int buckets, Integer samples, List<String> names, String format,
        Map<String, String> options, String staging, List<String> partitionBy, Bucketed bucketed) {
    /** How rows are assigned to a sink's files: by columns, and sorted in each. */
    public record Bucketed(int count, List<String> by, List<String> sortBy) {}

    /** Where the rows go. */
    public enum Layout { EXCHANGE, STREAM, RESULT, SINK }
}
