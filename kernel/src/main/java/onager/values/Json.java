package onager.values;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.MapperFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.PropertyNamingStrategies;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.io.UncheckedIOException;

/** JSON between Python and the kernel: its names are in snake case, Java's in camel case. */
public final class Json {
    private static final ObjectMapper MAPPER = JsonMapper.builder().propertyNamingStrategy(PropertyNamingStrategies.SNAKE_CASE)
            .enable(MapperFeature.ACCEPT_CASE_INSENSITIVE_ENUMS).disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES).build();

    private Json() {}

    /** Return the object in *text* as an *as*; fields that *as* lacks are ignored. */
    public static <T> T read(String text, Class<T> as) {
        return unchecked(() -> MAPPER.readValue(text, as));
    }

    public static JsonNode tree(String text) {
        return unchecked(() -> MAPPER.readTree(text));
    }

    public static byte[] bytes(Object value) {
        return unchecked(() -> MAPPER.writeValueAsBytes(value));
    }

    public static String text(Object value) {
        return unchecked(() -> MAPPER.writeValueAsString(value));
    }

    private interface Work<T> {
        T run() throws JsonProcessingException;
    }

    private static <T> T unchecked(Work<T> work) {
        try {
            return work.run();
        } catch (JsonProcessingException e) {
            throw new UncheckedIOException(e);
        }
    }
}
