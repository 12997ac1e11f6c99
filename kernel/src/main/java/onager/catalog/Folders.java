package onager.catalog;

import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;

/** Folders of managed tables that a planning makes, and those that nobody needs once its job has succeeded. */
final class Folders {
    /** As `OnagerCatalog` names them: no other folder is ever removed. */
    private static final Pattern OWN = Pattern.compile(".*-[0-9a-f]{16}");

    final Set<String> made = new TreeSet<>();
    final Set<String> retired = new TreeSet<>();

    void make(CatalogTable table) {
        made.add(table.location().toString());
    }

    void retire(CatalogTable table) {
        if (!table.tableType().equals(CatalogTableType.MANAGED()) || table.storage().locationUri().isEmpty()) {
            return;
        }
        String folder = table.location().toString();
        if (!made.contains(folder) && OWN.matcher(folder).matches()) {
            retired.add(folder);
        }
    }
}
