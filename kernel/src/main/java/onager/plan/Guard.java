package onager.plan;

import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;
import onager.failure.RefusedException;
import onager.spark43.Lookups;
import onager.values.Seqs;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.FileTable;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * Restricts SQL in an executor's Spark: it must not read the paths in `spark.onager.privatePaths`, nor call Java methods (`reflect` and
 * similar functions) unless `spark.onager.reflect` is true. It also brings the rule that reads very many files as growing ones.
 */
public final class Guard extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {
    private static final String PATHS = "spark.onager.privatePaths";
    private static final String REFLECT = "spark.onager.reflect";

    @Override
    public BoxedUnit apply(SparkSessionExtensions extensions) {
        extensions.injectCheckRule(session -> {
            List<String> paths = paths(session);
            return plan -> {
                if (!paths.isEmpty()) {
                    check(plan, paths);
                }
                return BoxedUnit.UNIT;
            };
        });
        GrowingReads.inject(extensions);
        if (!SparkEnv.get().conf().getBoolean(REFLECT, false)) {
            for (String name : List.of("reflect", "java_method", "try_reflect")) {
                extensions.injectFunction(Lookups.replaced(name, arguments -> {
                    throw new RefusedException(name + " can call any Java method, with the rights of the executor, and is refused: "
                            + "use a UDF, or start executors with --spark-conf " + REFLECT + "=true");
                }));
            }
        }
        return BoxedUnit.UNIT;
    }

    /** Throw if one of *locations*, which a query of *session* would read, is private. */
    public static void checkRead(SparkSession session, Stream<org.apache.hadoop.fs.Path> locations) {
        List<String> paths = paths(session);
        if (!paths.isEmpty()) {
            checkAll(Seqs.seq(locations.toList()), paths);
        }
    }

    private static List<String> paths(SparkSession session) {
        return session.sparkContext().getConf().get(PATHS, "").lines().toList();
    }

    private static void check(LogicalPlan plan, List<String> paths) {
        if (plan instanceof LogicalRelation files && files.relation() instanceof HadoopFsRelation relation) {
            checkAll(relation.location().rootPaths(), paths);
        } else if (plan instanceof DataSourceV2Relation source && source.table() instanceof FileTable table) {
            checkAll(table.fileIndex().rootPaths(), paths);
        }
        Queries.below(plan).forEach(each -> check(each, paths));
    }

    private static void checkAll(Seq<org.apache.hadoop.fs.Path> roots, List<String> paths) {
        for (var root : Seqs.list(roots)) {
            String real = real(root);
            for (String path : paths) {
                boolean holds = isBelow(path, real);
                if (holds || isBelow(real, path)) {
                    throw new RefusedException(root.toString().replaceFirst("^file:", "") + " cannot be read: it "
                            + (holds ? "holds " : "is in ") + path + ", where Onager keeps files of its own"
                            + (holds ? "; name the directories below it that are wanted" : "; read from elsewhere"));
                }
            }
        }
    }

    private static boolean isBelow(String path, String directory) {
        return path.equals(directory) || path.startsWith(directory.endsWith("/") ? directory : directory + "/");
    }

    private static String real(org.apache.hadoop.fs.Path path) {
        String scheme = path.toUri().getScheme();
        if (scheme != null && !scheme.equals("file")) {
            return path.toString();
        }
        Path local = Path.of(path.toUri().getPath());
        try {
            return local.toRealPath().toString();
        } catch (IOException e) {
            return local.normalize().toString(); // it does not exist, or is not readable
        }
    }
}
