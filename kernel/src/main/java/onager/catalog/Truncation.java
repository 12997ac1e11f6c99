package onager.catalog;

import onager.failure.RefusedException;
import onager.spark43.CatalogErrors;
import onager.spark43.CatalogSessions;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.command.TruncateTableCommand;
import org.apache.spark.sql.util.PartitioningUtils;
import scala.Option;
import scala.collection.immutable.Map;

/** `TRUNCATE TABLE`, which removes no file here: what it empties gets folders that nothing else has ever had. */
public final class Truncation {
    private Truncation() {}

    /** Changes *catalog* as the statement *parsed* does. */
    public static void run(OnagerCatalog catalog, LogicalPlan parsed) {
        if (!(CatalogSessions.analyzed(catalog.session(), parsed) instanceof TruncateTableCommand command)) {
            throw new RefusedException("it is about what is no table of files");
        }
        var session = catalog.session().sessionState();
        var named = session.catalog().qualifyIdentifier(command.tableName());
        CatalogTable table = catalog.getTable(named.database().get(), named.table());
        String name = table.identifier().quotedString();
        if (table.tableType().equals(CatalogTableType.EXTERNAL())) {
            throw CatalogErrors.truncatesExternal(name);
        }
        Option<Map<String, String>> spec = command.partitionSpec();
        if (table.partitionColumnNames().isEmpty()) {
            if (spec.isDefined()) {
                throw CatalogErrors.truncatesNoPartition(name);
            }
            catalog.emptied(table.database(), table.identifier().table());
            return;
        }
        catalog.emptyPartitions(table, spec.map(each ->
                PartitioningUtils.normalizePartitionSpec(each, table.partitionSchema(), name, session.conf().resolver())));
    }
}
