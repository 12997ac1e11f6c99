package onager.catalog;

import com.fasterxml.jackson.databind.JsonNode;
import java.security.SecureRandom;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import onager.failure.RefusedException;
import onager.spark43.CatalogCodec;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalog;

/** What a catalog reads of the store and changes in its copy: a slot for each record that it has looked at. */
abstract class CatalogOfSlots implements ExternalCatalog {
    static final String DEFAULT = "default";
    /** Schedulers refuse fewer changes than that; but a script of ten thousand is not to be planned for minutes before. */
    private static final int FAR_TOO_MANY = 200;
    private static final SecureRandom RANDOM = new SecureRandom();

    final CatalogReads reads = new CatalogReads();
    final Records records = new Records(reads);
    final Map<String, Slot> slots = new TreeMap<>();
    boolean mayChange = false;

    /** What a key holds: as it was read, and now. */
    static final class Slot {
        final long revision;
        final Object before;
        Object now;
        boolean isChanged = false;

        Slot(long revision, Object before) {
            this.revision = revision;
            this.before = before;
            this.now = before;
        }

        void set(Object value) {
            now = value;
            isChanged = true;
        }

        /** Whether it ends otherwise than it was, or may. */
        boolean isOther() {
            return isChanged && (now != null || revision > 0);
        }
    }

    void checkMayChange() {
        if (!mayChange) {
            throw new RefusedException("databases, tables, views and functions are changed by statements of a job's SQL script only");
        }
        if (slots.size() > FAR_TOO_MANY && slots.values().stream().filter(Slot::isOther).count() > FAR_TOO_MANY) {
            throw new RefusedException("the job changes more than " + FAR_TOO_MANY + " records of the catalog, and may change far fewer: "
                    + "make fewer changes in one job, and the others in jobs of their own");
        }
    }

    Slot database(String name) {
        return slot(Records.key("databases", name));
    }

    Slot table(String database, String name) {
        String key = Records.key("tables", database, name);
        return database.equals(DEFAULT) ? slot(key) : slot(key, Records.key("databases", database));
    }

    TableRecord existing(String database, String name) {
        requireTableExists(database, name);
        return (TableRecord) table(database, name).now;
    }

    List<Slot> tableSlots(String database, List<String> names) {
        records.load(names.stream().map(each -> Records.key("tables", database, each)).filter(key -> !slots.containsKey(key)).toList());
        return names.stream().map(each -> table(database, each)).toList();
    }

    Slot function(String database, String name) {
        return slot(Records.key("functions", database, name));
    }

    private Slot slot(String key, String... others) {
        Slot found = slots.get(key);
        if (found == null) {
            Records.Stored stored = records.get(key, others);
            found = new Slot(stored.revision(), stored.value() == null ? null : object(stored.value()));
            slots.put(key, found);
        }
        return found;
    }

    private static Object object(JsonNode value) {
        JsonNode spark = value.path("spark");
        return switch (value.path("kind").asText()) {
            case "database" -> CatalogCodec.database(spark);
            case "function" -> CatalogCodec.function(spark);
            default -> new TableRecord(value);
        };
    }

    /** Returns the names of what is below *kind* and *parts*, sorted. */
    List<String> names(String kind, String... parts) {
        String prefix = Records.key(kind, parts) + "/";
        var names = new TreeSet<String>();
        records.names(prefix).forEach(key -> names.add(name(key)));
        slots.forEach((key, slot) -> {
            if (key.startsWith(prefix) && slot.isChanged) {
                names.remove(name(key));
                if (slot.now != null) {
                    names.add(name(key));
                }
            }
        });
        return List.copyOf(names);
    }

    void change(String database, String name, CatalogTable to) {
        checkMayChange();
        TableRecord table = existing(database, name);
        table.spark = to;
        table(database, name).set(table);
    }

    static String newId() {
        var bytes = new byte[8];
        RANDOM.nextBytes(bytes);
        return HexFormat.of().formatHex(bytes);
    }

    private static String name(String key) {
        return Records.decoded(key.substring(key.lastIndexOf('/') + 1));
    }
}
