package onager.catalog;

import java.util.stream.Stream;
import onager.failure.RefusedException;
import onager.spark43.CatalogErrors;
import onager.spark43.CatalogSessions;
import onager.spark43.WriterPlans;
import onager.values.Seqs;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.FakeSystemCatalog$;
import org.apache.spark.sql.catalyst.analysis.ResolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.ResolvedNamespace;
import org.apache.spark.sql.catalyst.analysis.ResolvedPersistentFunc;
import org.apache.spark.sql.catalyst.analysis.ResolvedPersistentView;
import org.apache.spark.sql.catalyst.analysis.ResolvedTable;
import org.apache.spark.sql.catalyst.analysis.UnresolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OverwriteByExpression;
import org.apache.spark.sql.catalyst.plans.logical.OverwritePartitionsDynamic;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceTableAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.execution.command.SaveAsV1TableCommand;
import org.apache.spark.sql.execution.command.TruncateTableCommand;
import org.apache.spark.sql.execution.datasources.v2.V2SessionCatalog;
import org.apache.spark.sql.util.PartitioningUtils;
import scala.Option;

/** Statements about tables, and commands of Spark's writers, by Spark's own rules: they check what is written against the table. */
public final class Statements {
    private Statements() {}

    /**
     * Plans *command*, which writes a table: a parsed statement, or what DataFrameWriter or DataFrameWriterV2 has made, not analyzed. A table of *catalog* can be appended to and replaced by
     * DataFrameWriterV2, too, by whose rules Spark writes tables of other catalogs only.
     */
    public static TableWrite write(OnagerCatalog catalog, LogicalPlan command) {
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

    /** Changes *catalog* as {@code TRUNCATE TABLE} does. It removes no file here: what it empties gets folders that nothing else has ever had. */
    public static void truncate(OnagerCatalog catalog, LogicalPlan parsed) {
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
        Option<scala.collection.immutable.Map<String, String>> spec = command.partitionSpec();
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

    /** Returns the name of a catalog other than the session's own that the statement *parsed* names, or "". */
    public static String otherCatalog(SparkSession session, LogicalPlan parsed) {
        return catalogs(CatalogSessions.analyzed(session, parsed))
                .filter(each -> !(each instanceof V2SessionCatalog) && each != FakeSystemCatalog$.MODULE$)
                .map(CatalogPlugin::name).findFirst().orElse("");
    }

    private static Stream<CatalogPlugin> catalogs(LogicalPlan plan) {
        CatalogPlugin own = plan instanceof ResolvedNamespace named ? named.catalog()
                : plan instanceof ResolvedTable table ? table.catalog()
                : plan instanceof ResolvedIdentifier name ? name.catalog()
                : plan instanceof ResolvedPersistentView view ? view.catalog()
                : plan instanceof ResolvedPersistentFunc function ? function.catalog()
                : null;
        return Stream.concat(Stream.ofNullable(own), Seqs.list(plan.children()).stream().flatMap(Statements::catalogs));
    }
}
