package onager.plan;

import java.util.List;
import java.util.stream.Stream;
import onager.access.Access;
import onager.access.JobSettings;
import onager.decimals.LongSums;
import onager.failure.RefusedException;
import onager.spark43.CatalogSessions;
import onager.spark43.Formats;
import onager.spark43.Lookups;
import onager.spark43.Variables;
import onager.values.Seqs;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.HiveTableRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.jdbc.JDBCRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.FileTable;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * Restricts SQL in an executor's Spark to what {@link Access} allows: it reads no other places and data sources, runs no programs, sees no
 * environment, and calls no Java methods (`reflect` and similar functions) unless `spark.onager.reflect` is true. It also brings the rules
 * that read very many files as growing ones, and add decimals up in longs.
 */
public final class Guard extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {
    private static final String REFLECT = "spark.onager.reflect";
    /** Functions that take options of a format. */
    private static final List<String> OF_TEXTS = List.of("from_csv", "to_csv", "schema_of_csv", "from_json", "to_json", "schema_of_json", "from_xml",
            "to_xml", "schema_of_xml");
    /** An option that names a file. */
    private static final String SCHEMA_FILE = "rowValidationXSDPath";
    private static final String OWN_CATALOG = "spark_catalog";

    @Override
    public BoxedUnit apply(SparkSessionExtensions extensions) {
        extensions.injectParser(Variables::parser);
        GuardedRequests.inject(extensions); // before any other rule looks for files
        extensions.injectCheckRule(session -> {
            return plan -> {
                check(session, plan);
                return BoxedUnit.UNIT;
            };
        });
        GrowingReads.inject(extensions);
        LongSums.inject(extensions);
        OF_TEXTS.forEach(name -> extensions.injectFunction(Lookups.checked(name, Guard::checkOption)));
        if (!isReflecting()) {
            for (String name : List.of("reflect", "java_method", "try_reflect")) {
                extensions.injectFunction(Lookups.replaced(name, arguments -> {
                    throw new RefusedException(name + " can call any Java method, with the rights of the executor, and is refused: "
                            + "use a UDF, or start executors with --spark-conf " + REFLECT + "=true");
                }));
            }
        }
        return BoxedUnit.UNIT;
    }

    /** Whether the operator lets queries call Java methods. */
    static boolean isReflecting() {
        return SparkEnv.get().conf().getBoolean(REFLECT, false);
    }

    /** Throw if one of *locations*, which a query of *session* would read, is not for jobs. */
    public static void checkRead(SparkSession session, Stream<Path> locations) {
        String home = home(session);
        Access access = Access.get();
        locations.forEach(path -> access.checkRead(path, home));
    }

    /** Return the file system of paths that name none. */
    static String home(SparkSession session) {
        return FileSystem.getDefaultUri(session.sparkContext().hadoopConfiguration()).getScheme();
    }

    private static void check(SparkSession session, LogicalPlan plan) {
        if (plan instanceof LogicalRelation files) {
            CatalogTable table = files.catalogTable().getOrElse(() -> null);
            if (files.relation() instanceof HadoopFsRelation relation) {
                boolean isOfCatalog = isOfHive(table) || relation.location() instanceof FixedFileIndex;
                checkRoots(session, relation.location().rootPaths(), isOfCatalog);
                checkFormat(session, isOfCatalog ? null : Formats.name(relation.fileFormat()));
                for (var option : Seqs.each(relation.options().iterator())) {
                    if (!isOfCatalog || !JobSettings.isPlain(option._2())) {
                        checkOption(option._1(), option._2());
                    }
                }
            } else if (table != null && table.provider().isDefined()) {
                checkFormat(session, table.provider().get());
            } else {
                checkOther(files.relation() instanceof JDBCRelation ? "jdbc" : "", files.relation());
            }
        } else if (plan instanceof HiveTableRelation table) {
            var location = table.tableMeta().storage().locationUri();
            checkRoots(session, Seqs.seq(location.isEmpty() ? List.of() : List.of(new Path(location.get()))), true);
        } else if (plan instanceof DataSourceV2Relation source && source.table() instanceof FileTable table) {
            checkRoots(session, table.fileIndex().rootPaths(), false);
            checkFormat(session, table.formatName());
        } else if (plan instanceof DataSourceV2Relation source && !Formats.isOpen(source.table()) && !isOfOthers(source)) {
            checkOther("", source.table());
        }
        Queries.below(plan).forEach(each -> check(session, each));
    }

    /** Whether *table* is Hive's, which the operator has configured: its tables may be of any format, and on any file system. */
    private static boolean isOfHive(CatalogTable table) {
        return table != null && Access.get().hasHive();
    }

    /** Whether *source* is of a catalog other than Onager's own, and the operator has configured such. */
    private static boolean isOfOthers(DataSourceV2Relation source) {
        return Access.get().hasCatalogs() && source.catalog().isDefined()
                && (Access.get().hasHive() || !source.catalog().get().name().equals(OWN_CATALOG));
    }

    private static void checkRoots(SparkSession session, scala.collection.immutable.Seq<Path> roots, boolean isOfCatalog) {
        String home = home(session);
        Access access = Access.get();
        Seqs.list(roots).forEach(path -> access.checkRead(path, home, isOfCatalog));
        if (CatalogSessions.catalog((org.apache.spark.sql.classic.SparkSession) session) instanceof NotesReads catalog) {
            catalog.noteRead(Seqs.list(roots).stream());
        }
    }

    /** Throws if the operator allows no source *name*, or, if that is not known, none at all: *relation* is then nothing that jobs may read. */
    private static void checkOther(String name, Object relation) {
        Access access = Access.get();
        if (name.isEmpty() ? !access.allowsSources() : !access.allows(name)) {
            String shown = name.isEmpty() ? relation.getClass().getName() : name;
            throw new RefusedException("the data source " + shown + " is not among those that jobs may use; " + Access.flag(shown));
        }
    }

    private static void checkFormat(SparkSession session, String name) {
        if (name != null) {
            GuardedRequests.checkFormat((org.apache.spark.sql.classic.SparkSession) session, name);
        }
    }

    static void checkOption(String name, String value) {
        String why = JobSettings.ofOption(name, value);
        if (why != null) {
            throw new RefusedException("the option " + name + " is refused: " + why);
        }
        if (name.equalsIgnoreCase(SCHEMA_FILE)) {
            Access.get().checkRead(new Path(value), "file");
        }
    }
}
