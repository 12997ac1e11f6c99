package onager.values;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.MapperFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.PropertyNamingStrategies;
import com.fasterxml.jackson.databind.json.JsonMapper;

/** What travels between Python and the kernel: JSON, whose names have underscores where Java's have capitals. */
public final class Json {
    private static final ObjectMapper MAPPER = JsonMapper.builder().propertyNamingStrategy(PropertyNamingStrategies.SNAKE_CASE)
            .enable(MapperFeature.ACCEPT_CASE_INSENSITIVE_ENUMS).disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES).build();

    private Json() {}

    /** Return the members of an object that *as* has; others may have a use elsewhere. */
    public static <T> T read(String text, Class<T> as) throws JsonProcessingException {
        return MAPPER.readValue(text, as);
    }

    public static JsonNode tree(String text) throws JsonProcessingException {
        return MAPPER.readTree(text);
    }

    public static byte[] bytes(Object value) throws JsonProcessingException {
        return MAPPER.writeValueAsBytes(value);
    }

    public static String text(Object value) throws JsonProcessingException {
        return MAPPER.writeValueAsString(value);
    }
}
