package onager.catalog;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.UncheckedIOException;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Stream;
import onager.failure.RefusedException;
import onager.values.Json;

/** What has been read of the store, each key and each list at most once, so that all of a planning sees the same. */
final class Records {
    private static final int MAX_KEYS = 100;
    private static final int VERSION = 1;
    private static final String PAGES = "pages/";

    /** A record's value as it is stored (null: there is none) and the revision of its last change (0: none). */
    record Stored(JsonNode value, long revision) {}

    private final CatalogReads reads;
    private final Map<String, Stored> known = new HashMap<>();
    private final Map<String, Long> seen = new TreeMap<>();
    private final Map<String, Map<String, Long>> listed = new TreeMap<>();
    private int asked = 0; // requests for records or lists; pages never change
    private int settled = 1; // so many requests read what was there at once
    private boolean hasMoved = false;

    Records(CatalogReads reads) {
        this.reads = reads;
    }

    /** Returns the key of *names* below *kind*. */
    static String key(String kind, String... names) {
        var key = new StringBuilder(kind);
        Stream.of(names).forEach(each -> key.append('/').append(encoded(each)));
        return key.toString();
    }

    /** Percent-encodes all but letters, digits and {@code _.-~} of ASCII. */
    private static String encoded(String name) {
        return URLEncoder.encode(name, StandardCharsets.UTF_8).replace("+", "%20").replace("*", "%2A").replace("%7E", "~");
    }

    static String decoded(String part) {
        return URLDecoder.decode(part.replace("+", "%2B"), StandardCharsets.UTF_8);
    }

    /** Returns the record *key*, and reads *others* with it. */
    Stored get(String key, String... others) {
        if (!known.containsKey(key)) {
            var keys = new ArrayList<>(List.of(key));
            keys.addAll(List.of(others));
            load(keys);
        }
        return known.get(key);
    }

    /** Reads those of *keys* that are not known. */
    void load(Collection<String> keys) {
        var missing = new LinkedHashSet<>(keys);
        missing.removeAll(known.keySet());
        while (!missing.isEmpty()) {
            List<String> some = missing.stream().limit(MAX_KEYS).toList();
            asked += some.get(0).startsWith(PAGES) ? 0 : 1;
            JsonNode answer = ask(some, List.of(), false, "");
            var found = new HashMap<String, Stored>();
            for (JsonNode each : answer.path("records")) {
                JsonNode value = value(each);
                found.put(each.path("key").asText(), new Stored(value, value == null ? 0 : each.path("revision").asLong()));
            }
            for (String key : some) {
                Stored stored = found.getOrDefault(key, new Stored(null, 0));
                known.put(key, stored);
                missing.remove(key);
                if (!key.startsWith(PAGES)) {
                    see(key, stored.revision);
                }
            }
        }
    }

    private static JsonNode value(JsonNode record) {
        if (!record.hasNonNull("value")) {
            return null;
        }
        try {
            JsonNode value = Json.tree(record.get("value").asText());
            if (value.path("version").asInt(VERSION) > VERSION) {
                throw new RefusedException("the record " + record.path("key").asText() + " of the catalog was written by a newer Onager: "
                        + "upgrade this executor");
            }
            return value;
        } catch (UncheckedIOException e) {
            throw new RefusedException("the record " + record.path("key").asText() + " of the catalog is damaged: "
                    + ((JsonProcessingException) e.getCause()).getOriginalMessage());
        }
    }

    private void see(String key, long revision) {
        Long before = seen.putIfAbsent(key, revision);
        if (before != null && before != revision) {
            throw moved(key);
        }
    }

    /** Returns the exception for *key*, which is not as it was; from now on this planning cannot be saved, whoever catches that. */
    CatalogMoved moved(String key) {
        hasMoved = true;
        return new CatalogMoved(key);
    }

    /** Returns the names below *prefix*, which ends with a slash, in their order. */
    Collection<String> names(String prefix) {
        if (!listed.containsKey(prefix)) {
            Map<String, Long> found = list(prefix);
            asked++;
            listed.put(prefix, found);
            found.forEach(this::see);
        }
        return listed.get(prefix).keySet();
    }

    private Map<String, Long> list(String prefix) {
        var found = new TreeMap<String, Long>();
        JsonNode answer;
        do {
            asked += found.isEmpty() ? 0 : 1;
            answer = ask(List.of(), List.of(prefix), true, found.isEmpty() ? "" : found.lastKey());
            for (JsonNode each : answer.path("records")) {
                found.put(each.path("key").asText(), each.path("revision").asLong());
            }
        } while (answer.path("truncated").asBoolean() && !answer.path("records").isEmpty());
        return found;
    }

    /**
     * Whether all that was read was there at once. That holds for one request, and otherwise when nothing of it has changed since the
     * last read.
     */
    boolean isOfOneRevision() {
        if (hasMoved || asked <= settled) {
            return !hasMoved;
        }
        int upTo = asked;
        var keys = new ArrayList<>(seen.keySet());
        listed.values().forEach(each -> keys.removeAll(each.keySet()));
        for (int from = 0; from < keys.size(); from += MAX_KEYS) {
            List<String> some = keys.subList(from, Math.min(keys.size(), from + MAX_KEYS));
            var now = new HashMap<String, Long>();
            for (JsonNode each : ask(some, List.of(), true, "").path("records")) {
                now.put(each.path("key").asText(), each.path("revision").asLong());
            }
            if (some.stream().anyMatch(key -> !now.getOrDefault(key, 0L).equals(seen.get(key)))) {
                return false;
            }
        }
        if (!listed.entrySet().stream().allMatch(each -> list(each.getKey()).equals(each.getValue()))) {
            return false;
        }
        asked = settled = upTo;
        return true;
    }

    private JsonNode ask(List<String> keys, List<String> prefixes, boolean keysOnly, String startAfter) {
        return reads.read(Map.of("keys", keys, "prefixes", prefixes, "keys_only", keysOnly, "start_after", startAfter));
    }
}
