package onager.spark43;

import java.util.List;
import onager.values.Seqs;
import org.apache.spark.sql.catalyst.analysis.DatabaseAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchDatabaseException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchPartitionsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.PartitionsAlreadyExistException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.errors.QueryCompilationErrors;
import scala.collection.immutable.Map;

/** The exceptions of Spark's catalogs, which are checked ones in Java and not in Scala. Every method throws what it returns. */
public final class CatalogErrors {
    private CatalogErrors() {}

    public static RuntimeException noDatabase(String name) {
        throw thrown(new NoSuchDatabaseException(name));
    }

    public static RuntimeException databaseExists(String name) {
        throw thrown(new DatabaseAlreadyExistsException(name));
    }

    public static RuntimeException databaseNotEmpty(String name) {
        throw thrown(QueryCompilationErrors.cannotDropNonemptyDatabaseError(name));
    }

    public static RuntimeException noTable(Identifier ident) {
        throw thrown(new NoSuchTableException(ident));
    }

    public static RuntimeException noNamespace(String[] namespace) {
        throw thrown(new NoSuchNamespaceException(namespace));
    }

    public static RuntimeException tableExists(String database, String name) {
        throw thrown(new TableAlreadyExistsException(database, name));
    }

    public static RuntimeException noPartitions(String database, String table, List<Map<String, String>> specs) {
        throw thrown(new NoSuchPartitionsException(database, table, Seqs.seq(specs)));
    }

    public static RuntimeException partitionsExist(String database, String table, List<Map<String, String>> specs) {
        throw thrown(new PartitionsAlreadyExistException(database, table, Seqs.seq(specs)));
    }

    public static RuntimeException truncatesExternal(String table) {
        throw thrown(QueryCompilationErrors.truncateTableOnExternalTablesError(table));
    }

    public static RuntimeException truncatesNoPartition(String table) {
        throw thrown(QueryCompilationErrors.truncateTablePartitionNotSupportedForNotPartitionedTablesError(table));
    }

    @SuppressWarnings("unchecked")
    private static <E extends Throwable> RuntimeException thrown(Throwable e) throws E {
        throw (E) e;
    }
}
