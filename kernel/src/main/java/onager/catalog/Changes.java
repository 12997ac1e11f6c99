package onager.catalog;

import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import onager.spark43.CatalogCodec;
import onager.values.Json;
import org.apache.spark.sql.catalyst.catalog.CatalogDatabase;
import org.apache.spark.sql.catalyst.catalog.CatalogFunction;

/**
 * What a planning has changed: records as a whole, partitions of tables, and the revisions of further records that must be unchanged.
 * Partitions of a table whose record is put as a whole, too, are changes to that record.
 */
record Changes(List<Put> puts, List<OfPartitions> partitions, Map<String, Long> reads, Set<String> foldersMade, Set<String> foldersRetired) {
    /** *value*: null if the record is removed. *removedPagesOf*: the ids of tables that are no more. */
    record Put(String key, String value, long expectedRevision, List<String> removedPagesOf) {}

    /**
     * *set*, *expected*: partitions as JSON, by path; empty: there is none. *staleStats*: whether statistics hold no longer.
     * *template*, *seen*: see `TableRecord`.
     */
    record OfPartitions(String key, String tableId, String location, Map<String, String> set, Map<String, String> expected,
            boolean staleStats, String template, long seen) {}

    static Changes of(Map<String, CatalogOfSlots.Slot> slots, Folders folders) {
        var made = new Changes(new ArrayList<>(), new ArrayList<>(), new TreeMap<>(), folders.made, folders.retired);
        var live = new TreeSet<String>();
        slots.values().stream().map(each -> each.now).filter(TableRecord.class::isInstance).forEach(each -> live.add(((TableRecord) each).id));
        slots.forEach((key, slot) -> {
            if (slot.now instanceof TableRecord table && (table.hasChangedPartitions() || table.isWritten || table.awaitsRows)) {
                made.partitions.add(new OfPartitions(key, table.id, table.spark.location().toString(), table.set(), table.expected(),
                        table.isWritten, table.template(), table.seen()));
            }
            if (slot.isOther()) {
                boolean isGone = slot.before instanceof TableRecord old && !live.contains(old.id);
                List<String> removed = isGone ? List.of(((TableRecord) slot.before).id) : List.of();
                made.puts.add(new Put(key, slot.now == null ? "" : value(slot.now), slot.revision, removed));
                if (slot.now != null && slot.revision == 0) {
                    made.readDatabaseOf(key, slots);
                }
            }
        });
        return made;
    }

    /** What is new needs its database to be there still. */
    private void readDatabaseOf(String key, Map<String, CatalogOfSlots.Slot> slots) {
        String[] parts = key.split("/");
        CatalogOfSlots.Slot database = parts.length < 3 ? null : slots.get("databases/" + parts[1]);
        if (database != null && !database.isChanged) {
            reads.put("databases/" + parts[1], database.revision);
        }
    }

    private static String value(Object object) {
        if (object instanceof TableRecord table) {
            return Json.text(table.record());
        }
        boolean isDatabase = object instanceof CatalogDatabase;
        ObjectNode node = JsonNodeFactory.instance.objectNode().put("kind", isDatabase ? "database" : "function").put("version", 1);
        node.set("spark", isDatabase ? CatalogCodec.of((CatalogDatabase) object) : CatalogCodec.of((CatalogFunction) object));
        return Json.text(node);
    }
}
