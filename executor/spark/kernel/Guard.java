package onager.kernel;

import java.io.IOException;
import java.nio.file.LinkOption;
import java.nio.file.Paths;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry$;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.FileTable;
import scala.Tuple3;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * What SQL alone may not do in an executor's Spark, whoever analyzes it: read files that are Onager's own, by the setting
 * `spark.onager.privatePaths`, and call methods of Java (`reflect` and its like), unless `spark.onager.reflect` is true.
 */
public final class Guard extends AbstractFunction1 {
    static final String PATHS = "spark.onager.privatePaths";
    static final String REFLECT = "spark.onager.reflect";
    private static final String[] CALLS = {"reflect", "java_method", "try_reflect"};

    public Object apply(Object given) {
        SparkSessionExtensions extensions = (SparkSessionExtensions) given;
        extensions.injectCheckRule(new Rule());
        org.apache.spark.SparkConf conf = org.apache.spark.SparkEnv.get().conf();
        if (!conf.getBoolean(REFLECT, false)) {
            for (int i = 0; i < CALLS.length; i++) {
                FunctionIdentifier name = new FunctionIdentifier(CALLS[i]);
                ExpressionInfo info = (ExpressionInfo) FunctionRegistry$.MODULE$.builtin().lookupFunction(name).get();
                extensions.injectFunction(new Tuple3(name, info, new Refused(CALLS[i])));
            }
        }
        return BoxedUnit.UNIT;
    }

    private static final class Refused extends AbstractFunction1 {
        private final String name;

        Refused(String name) {
            this.name = name;
        }

        public Object apply(Object arguments) {
            throw new RefusedException(name + " calls any method of Java, with the rights of the executor, and is refused: "
                    + "use a UDF, or have executors started with --spark-conf " + REFLECT + "=true");
        }
    }

    private static final class Rule extends AbstractFunction1 {
        public Object apply(Object session) {
            String paths = ((SparkSession) session).sparkContext().getConf().get(PATHS, "");
            return new Check(paths.isEmpty() ? new String[0] : paths.split("\n"));
        }
    }

    private static final class Check extends AbstractFunction1 {
        private final String[] paths;

        Check(String[] paths) {
            this.paths = paths;
        }

        public Object apply(Object plan) {
            if (paths.length > 0) {
                check((LogicalPlan) plan);
            }
            return BoxedUnit.UNIT;
        }

        private void check(LogicalPlan plan) {
            if (plan instanceof LogicalRelation && ((LogicalRelation) plan).relation() instanceof HadoopFsRelation) {
                checkAll(((HadoopFsRelation) ((LogicalRelation) plan).relation()).location().rootPaths());
            } else if (plan instanceof DataSourceV2Relation && ((DataSourceV2Relation) plan).table() instanceof FileTable) {
                checkAll(((FileTable) ((DataSourceV2Relation) plan).table()).fileIndex().rootPaths());
            }
            Seq[] below = new Seq[] {plan.children(), plan.innerChildren(), plan.subqueries()};
            for (int i = 0; i < below.length; i++) {
                Iterator each = below[i].iterator();
                while (each.hasNext()) {
                    Object next = each.next();
                    if (next instanceof LogicalPlan) {
                        check((LogicalPlan) next);
                    }
                }
            }
        }

        private void checkAll(Seq roots) {
            Iterator each = roots.iterator();
            while (each.hasNext()) {
                Path root = (Path) each.next();
                String real = real(root);
                for (int i = 0; i < paths.length; i++) {
                    boolean holds = isBelow(paths[i], real);
                    if (holds || isBelow(real, paths[i])) {
                        throw new RefusedException(root.toString().replaceFirst("^file:", "") + " cannot be read: it "
                                + (holds ? "holds " : "is in ") + paths[i] + ", where Onager keeps files of its own"
                                + (holds ? "; name the directories below it that are wanted" : "; read from elsewhere"));
                    }
                }
            }
        }

        private static boolean isBelow(String path, String directory) {
            return path.equals(directory) || path.startsWith(directory.endsWith("/") ? directory : directory + "/");
        }

        private static String real(Path path) {
            String scheme = path.toUri().getScheme();
            if (scheme != null && !scheme.equals("file")) {
                return path.toString();
            }
            try {
                return Paths.get(path.toUri().getPath(), new String[0]).toRealPath(new LinkOption[0]).toString();
            } catch (IOException e) {
                return Paths.get(path.toUri().getPath(), new String[0]).normalize().toString(); // it is gone, or nobody's to read
            }
        }
    }
}
