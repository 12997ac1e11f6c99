package onager.catalog;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;
import onager.spark43.CatalogCodec;
import onager.values.Json;
import onager.values.Seqs;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTablePartition;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils;

/** A table or view, and its partitions, which are read when they are first needed. */
final class TableRecord {
    final String id;
    CatalogTable spark;
    /** Whether rows are written into its folder, of which its statistics do not tell. */
    boolean isWritten = false;
    /** Whether rows are written into partitions, which are known only once the rows are there. */
    boolean awaitsRows = false;
    private final ObjectNode before;
    private TreeMap<String, CatalogTablePartition> partitions = null;
    private final Map<String, JsonNode> stored = new HashMap<>();
    private final SortedMap<String, String> expected = new TreeMap<>();
    private final SortedMap<String, CatalogTablePartition> changed = new TreeMap<>();

    /** A new one. */
    TableRecord(String id, CatalogTable spark) {
        this.id = id;
        this.spark = spark;
        this.before = JsonNodeFactory.instance.objectNode();
        this.partitions = new TreeMap<>();
    }

    /** One that is stored as *record*; its pages hold its partitions. */
    TableRecord(JsonNode record) {
        this.id = record.path("id").asText();
        this.spark = CatalogCodec.table(record.path("spark"));
        this.before = (ObjectNode) record;
    }

    /** Returns the partitions by their paths. */
    SortedMap<String, CatalogTablePartition> partitions(Records records) {
        if (partitions == null) {
            var keys = new ArrayList<String>();
            before.path("pages").forEach(page -> keys.add(Records.key("pages", id, page.asText())));
            records.load(keys);
            var found = new TreeMap<String, CatalogTablePartition>();
            for (String key : keys) {
                JsonNode page = records.get(key).value();
                if (page == null) {
                    throw records.moved(key); // merged into another page since the table's record was read
                }
                page.properties().forEach(each -> {
                    if (each.getValue().isNull()) {
                        stored.remove(each.getKey());
                    } else {
                        stored.put(each.getKey(), each.getValue());
                    }
                });
            }
            stored.forEach((path, each) -> found.put(path, CatalogCodec.partition(each)));
            partitions = found;
        }
        return partitions;
    }

    /** Sets the partition at *path*, null: removes it. If *isStrict*, it must be at the commit as it was read. */
    void change(Records records, String path, CatalogTablePartition to, boolean isStrict) {
        var all = partitions(records);
        if (!changed.containsKey(path) && isStrict) {
            expected.put(path, stored.containsKey(path) ? Json.text(stored.get(path)) : "");
        }
        changed.put(path, to);
        if (to == null) {
            all.remove(path);
        } else {
            all.put(path, to);
        }
    }

    /** Forgets all partitions: with another folder, the table has none. */
    void removePartitions() {
        partitions = new TreeMap<>();
        stored.clear();
        expected.clear();
        changed.clear();
        before.remove(List.of("pages", "merged", "removed"));
    }

    /** Returns partitions into which rows are written, as JSON, but for what they are, and where. */
    String template() {
        return awaitsRows ? Json.text(CatalogCodec.of(CatalogCodec.partitionLike(spark))) : "";
    }

    /** Returns how often the stored partitions had been changed when they were read. */
    long seen() {
        return before.path("changes").asLong(0);
    }

    /**
     * Returns below which folder partitions lie that get no place by name: never where others lay, whose files are still there, unless they
     * are the user's own. *id*: of a new folder.
     */
    Path newPartitionsAt(String id) {
        var root = new Path(spark.location());
        if (!spark.tableType().equals(CatalogTableType.MANAGED())) {
            return root;
        }
        long removed = before.path("removed").asLong(0);
        return changed.containsValue(null) ? new Path(root, Folders.within(id))
                : removed > 0 ? new Path(root, Folders.within(String.format("%016x", removed))) : root;
    }

    boolean hasChangedPartitions() {
        return !changed.isEmpty();
    }

    /** Returns what partitions have become, by path; empty: removed. */
    Map<String, String> set() {
        var set = new TreeMap<String, String>();
        changed.forEach((path, each) -> set.put(path, each == null ? "" : Json.text(CatalogCodec.of(each))));
        return set;
    }

    Map<String, String> expected() {
        return expected;
    }

    /** Returns the record as it is to be stored; what is not known here of a stored one is kept. */
    ObjectNode record() {
        boolean isView = spark.tableType().equals(CatalogTableType.VIEW());
        ObjectNode node = before.deepCopy().put("kind", isView ? "view" : "table").put("version", 1).put("id", id);
        node.set("spark", CatalogCodec.of(spark));
        return node;
    }

    /** Returns the path of the partition *spec*, or of all that begin with it, as Hive names the directory. */
    String path(scala.collection.immutable.Map<String, String> spec) {
        return String.join("/", Seqs.list(spark.partitionColumnNames()).stream().limit(spec.size())
                .map(name -> ExternalCatalogUtils.getPartitionPathString(name, spec.getOrElse(name, () -> null))).toList());
    }

    Collection<CatalogTablePartition> matching(Records records, scala.Option<scala.collection.immutable.Map<String, String>> partial) {
        var all = partitions(records).values();
        return partial.isEmpty() ? all
                : all.stream().filter(each -> ExternalCatalogUtils.isPartialPartitionSpec(partial.get(), each.spec())).toList();
    }
}
