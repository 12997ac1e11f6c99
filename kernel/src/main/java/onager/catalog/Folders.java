package onager.catalog;

import java.net.URI;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;

/** Folders that a planning makes for rows of tables, and those that nobody needs once its job has succeeded. */
final class Folders {
    /** As `OnagerCatalog` names them: no other folder is ever removed. */
    private static final Pattern OWN = Pattern.compile(".*-[0-9a-f]{16}");

    final Set<String> made = new TreeSet<>();
    final Set<String> retired = new TreeSet<>();

    /** In a folder of rows that replace others: the list of their files, which are not needed any more either. */
    private static final String REPLACED = "_replaced";

    void make(CatalogTable table) {
        made.add(path(table.location()));
    }

    /** Make a folder below that of *table* for rows that replace some of it, and return its path. */
    String makeWithin(CatalogTable table, String id) {
        String folder = path(new Path(new Path(table.location()), within(id)).toUri());
        made.add(folder);
        retired.add(folder + "/" + REPLACED);
        return folder;
    }

    /** Returns the name of a folder in that of a table. */
    static String within(String id) {
        return "v-" + id;
    }

    /** Returns a location, which is a URI, as a path. */
    static String path(URI location) {
        return new Path(location).toString();
    }

    void retire(CatalogTable table) {
        if (!table.tableType().equals(CatalogTableType.MANAGED()) || table.storage().locationUri().isEmpty()) {
            return;
        }
        String folder = path(table.location());
        if (!made.contains(folder) && OWN.matcher(folder).matches()) {
            retired.add(folder);
        }
    }
}
