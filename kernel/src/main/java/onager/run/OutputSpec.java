package onager.run;

import java.util.List;
import java.util.Map;

/**
 * What becomes of a stage's rows.
 *
 * @param directory the stage's, below that of the exchange
 * @param samples how many keys go along with rows that are sorted by an order; null: rows go by a bucket expression, or in turn
 * @param names of a result's columns; null: as the plan calls them
 * @param format of a sink, as *options* and *staging*
 */
public record OutputSpec(Layout layout, String directory, int buckets, Integer samples, List<String> names, String format,
        Map<String, String> options, String staging) {
    /** Where the rows go. */
    public enum Layout { EXCHANGE, STREAM, RESULT, SINK }
}
