package onager.spark43;

import java.nio.file.Files;
import java.nio.file.Path;
import onager.failure.RefusedException;
import onager.values.Seqs;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.EliminateSubqueryAliases$;
import org.apache.spark.sql.catalyst.analysis.TableOutputResolver$;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.expressions.CreateStruct$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.catalyst.plans.logical.CreateTableAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.InsertIntoStatement;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceTableAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.types.DataTypeUtils$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogV2Util$;
import org.apache.spark.sql.execution.command.SaveAsV1TableCommand;
import org.apache.spark.sql.execution.datasources.CreateTable;
import org.apache.spark.sql.execution.datasources.InsertIntoHadoopFsRelationCommand;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.noop.NoopTable$;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.BooleanType$;
import scala.Option;
import scala.collection.immutable.Seq;

/** What Spark's writers of DataFrames make, as plans. */
public final class WriterPlans {
    private WriterPlans() {}

    /** A query that is written to a path in *format*; in none if its rows are to be computed only, which it does. */
    public record Dataset(LogicalPlan query, String format) {}

    /** Return a query that computes every column of every row of *query*, and has no rows. */
    private static LogicalPlan drained(LogicalPlan query) {
        Expression row = CreateStruct$.MODULE$.create(Seqs.<Expression>seq(Seqs.list(query.output())));
        Expression condition = new StaticInvoke(WriterPlans.class, BooleanType$.MODULE$, "isKept", Seqs.seq(row), Seqs.seq(), false, false, false,
                Option.empty()); // not deterministic: Spark neither moves it nor leaves columns out
        return new Project(Seqs.<NamedExpression>seq(Expressions.alias(Literal$.MODULE$.apply(0), "none")), new Filter(condition, query));
    }

    /** Return false: a task calls it for each row. */
    public static boolean isKept(InternalRow row) {
        return false;
    }

    /** Return what *command*, made by Spark's DataFrameWriter, writes to a path; Spark's errors for what cannot be. */
    public static Dataset dataset(SparkSession session, LogicalPlan command) {
        LogicalPlan analyzed = CatalogSessions.analyzed(session, command);
        if (analyzed instanceof InsertIntoHadoopFsRelationCommand insert) {
            if (insert.dynamicPartitionOverwrite() && Files.exists(Path.of(insert.outputPath().toUri().getPath()))) {
                throw new RefusedException("only those partitions of a dataset would be replaced that get rows: write a table (saveAsTable, "
                        + "insertInto), or replace all with spark.sql.sources.partitionOverwriteMode=static");
            }
            return new Dataset(insert.query(), Formats.name(insert.fileFormat()));
        }
        if (analyzed instanceof V2WriteCommand write && write.table() instanceof DataSourceV2Relation to && to.table() == NoopTable$.MODULE$) {
            return new Dataset(drained(write.query()), "");
        }
        throw new RefusedException("rows are written to files only, or into tables: write parquet, orc, csv, json, text or xml, or "
                + "use saveAsTable()");
    }

    /** Return the table of files that *named* stands for in the session's own catalog, or null: it is something else. */
    public static CatalogTable table(SparkSession session, UnresolvedRelation named) {
        LogicalPlan found = EliminateSubqueryAliases$.MODULE$.apply(CatalogSessions.analyzed(session, named.clearWritePrivileges()));
        return found instanceof LogicalRelation files ? files.catalogTable().getOrElse(() -> null) : null;
    }

    /** Return the table that *name* stands for in the session's own catalog, with its database; null: it is one of another catalog. */
    public static TableIdentifier ofSession(SparkSession session, Seq<String> name) {
        var found = session.sessionState().analyzer().CatalogAndIdentifier().unapply(name).get();
        if (!CatalogV2Util$.MODULE$.isSessionCatalog(found._1())) {
            return null;
        }
        String[] database = found._2().namespace();
        return session.sessionState().catalog().qualifyIdentifier(
                new TableIdentifier(found._2().name(), database.length == 0 ? Option.empty() : Option.apply(database[0])));
    }

    /** Return the plan that makes the table *name* of *save*, or appends to it. */
    public static LogicalPlan create(SaveAsV1TableCommand save, TableIdentifier name) {
        return new CreateTable(CatalogCodec.withName(save.tableDesc(), name), save.mode(), Option.apply(save.query()));
    }

    /** Return the plan that makes the table of *replace*, which is not there. */
    public static LogicalPlan create(ReplaceTableAsSelect replace) {
        return new CreateTableAsSelect(replace.name(), replace.partitioning(), replace.query(), replace.tableSpec(), replace.writeOptions(), false,
                false);
    }

    /**
     * Return the statement that inserts the columns of *query*, an analyzed one, by their names into *table*, which *named* stands for.
     * Every column has to be given, as Spark's DataFrameWriterV2 wants it.
     */
    public static LogicalPlan insert(SparkSession session, UnresolvedRelation named, CatalogTable table, LogicalPlan query, boolean overwrites) {
        var columns = DataTypeUtils$.MODULE$.toAttributes(table.schema());
        var resolver = TableOutputResolver$.MODULE$;
        LogicalPlan rows = resolver.resolveOutputColumns(table.qualifiedName(), Seqs.seq(Seqs.list(columns)), query, true, session.sessionState().conf(),
                resolver.resolveOutputColumns$default$6());
        return new InsertIntoStatement(named, Seqs.map(java.util.Map.of()), Seqs.seq(), rows, overwrites, false, false, Option.empty(), false);
    }
}
