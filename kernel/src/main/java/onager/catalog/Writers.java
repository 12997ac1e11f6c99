package onager.catalog;

import onager.failure.RefusedException;
import onager.spark43.CatalogErrors;
import onager.spark43.CatalogSessions;
import onager.spark43.WriterPlans;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OverwriteByExpression;
import org.apache.spark.sql.catalyst.plans.logical.OverwritePartitionsDynamic;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceTableAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.execution.command.SaveAsV1TableCommand;

/** Commands of Spark's DataFrameWriter and DataFrameWriterV2 about tables, planned by Spark's rules: they check what is written against the table. */
public final class Writers {
    private Writers() {}

    /**
     * Plans *command*, which Spark's writer has made and nobody has analyzed. A table of *catalog* can be appended to and replaced by
     * DataFrameWriterV2, too, by whose rules Spark writes tables of other catalogs only.
     */
    public static TableWrite of(OnagerCatalog catalog, LogicalPlan command) {
        if (command instanceof SaveAsV1TableCommand save) {
            return saved(catalog, save);
        }
        if (command instanceof ReplaceTableAsSelect replace && replace.name() instanceof UnresolvedIdentifier named) {
            TableIdentifier name = WriterPlans.ofSession(catalog.session(), named.nameParts());
            if (name != null) {
                return replaced(catalog, replace, name);
            }
        }
        if (command instanceof V2WriteCommand write && write.table() instanceof UnresolvedRelation named) {
            CatalogTable table = WriterPlans.table(catalog.session(), named);
            if (table != null) {
                return TableWrite.of(catalog, inserted(catalog, write, named, table));
            }
        }
        return TableWrite.of(catalog, command);
    }

    private static TableWrite saved(OnagerCatalog catalog, SaveAsV1TableCommand save) {
        var tables = catalog.session().sessionState().catalog();
        var name = tables.qualifyIdentifier(save.tableDesc().identifier());
        if (catalog.databaseExists(name.database().get()) && tables.tableExists(name)) {
            if (save.mode() == SaveMode.Ignore) {
                return TableWrite.NOTHING;
            }
            if (save.mode() == SaveMode.ErrorIfExists) {
                throw CatalogErrors.tableExists(name.database().get(), name.table());
            }
            if (save.mode() == SaveMode.Overwrite) {
                tables.dropTable(name, true, false);
            }
        }
        return TableWrite.of(catalog, WriterPlans.create(save, name));
    }

    private static TableWrite replaced(OnagerCatalog catalog, ReplaceTableAsSelect replace, TableIdentifier name) {
        if (!replace.orCreate() || catalog.tableExists(name.database().get(), name.table())) {
            catalog.session().sessionState().catalog().dropTable(name, false, false);
        }
        return TableWrite.of(catalog, WriterPlans.create(replace));
    }

    private static LogicalPlan inserted(OnagerCatalog catalog, V2WriteCommand write, UnresolvedRelation named, CatalogTable table) {
        if (write instanceof OverwriteByExpression) {
            throw new RefusedException("rows of a table are replaced as a whole or by partitions, and not by a condition: use "
                    + "overwritePartitions(), or INSERT OVERWRITE");
        }
        if (!(write instanceof AppendData) && !(write instanceof OverwritePartitionsDynamic)) {
            throw new RefusedException("a table is written by append() or overwritePartitions()");
        }
        LogicalPlan query = CatalogSessions.analyzed(catalog.session(), write.query());
        return WriterPlans.insert(catalog.session(), named, table, query, write instanceof OverwritePartitionsDynamic);
    }
}
