package onager.run;

import java.io.Serializable;
import java.util.Map;

/** The outcome of one partition: plain values by name, and a small result or null. The task sends it to the driver. */
@SuppressWarnings("serial")
public record Outcome(int partition, Map<String, Object> fields, byte[] inline) implements Serializable {
    long number(String field) {
        return ((Number) fields.get(field)).longValue();
    }

    String text(String field) {
        return (String) fields.get(field);
    }
}
