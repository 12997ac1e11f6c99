package onager.failure;

import java.util.Map;
import org.apache.spark.SparkThrowable;

/** What to do instead of what a message of Spark advises, where that does not help with Onager. */
public final class Advice {
    private static final Map<String, String> INSTEAD = Map.of("UNSUPPORTED_FEATURE.QUERY_ONLY_CORRUPT_RECORD_COLUMN",
            "With Onager cache() keeps no rows: call checkpoint(), or write the parsed rows to files, and query these.");

    private Advice() {}

    /** Return *message*, that of *error*, with what to do instead. */
    public static String with(String message, Object error) {
        String condition = error instanceof SparkThrowable known ? known.getCondition() : null;
        String instead = condition == null ? null : INSTEAD.get(condition);
        return instead == null ? message : message + "\n" + instead;
    }
}
