package onager.kernel;

import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ParsedStatement;
import org.apache.spark.sql.catalyst.plans.logical.Range;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.math.BigInt;

/** What the planner asks of a query before Spark has made a physical plan of it. */
public final class Queries {
    private static final BigInt MOST_NUMBERS = BigInt.apply(1L << 50);

    private Queries() {}

    /** Returns whether a parsed statement does something instead of giving rows. */
    public static boolean isCommand(LogicalPlan plan) {
        return plan instanceof Command || plan instanceof ParsedStatement;
    }

    /**
     * Returns the size of all that an analyzed query reads, before any pruning; -1 if a source does not say.
     *
     * <p>A range counts 8 bytes a number, local rows by Spark's estimate, an RDD of the driver nothing.
     */
    public static long inputBytes(LogicalPlan plan) {
        long total = 0;
        if (plan instanceof LogicalRelation && ((LogicalRelation) plan).relation() instanceof HadoopFsRelation) {
            total += ((HadoopFsRelation) ((LogicalRelation) plan).relation()).location().sizeInBytes();
        } else if (plan instanceof Range) {
            total += 8L * Math.max(0L, ((Range) plan).numElements().min(MOST_NUMBERS).toLong());
        } else if (plan.getClass().getSimpleName().equals("LogicalRDD")) {
            total += 0;
        } else if (plan.children().isEmpty() && plan.subqueries().isEmpty() && plan.innerChildren().isEmpty()) {
            BigInt size = plan.stats().sizeInBytes();
            if (!size.isValidLong() || size.toLong() >= 1L << 60) {
                return -1;
            }
            total += size.toLong();
        }
        Seq[] below = new Seq[] {plan.children(), plan.subqueries()};
        for (int i = 0; i < below.length; i++) {
            Iterator each = below[i].iterator();
            while (each.hasNext()) {
                long bytes = inputBytes((LogicalPlan) each.next());
                if (bytes < 0) {
                    return -1;
                }
                total += bytes;
            }
        }
        return total;
    }

    /** Returns the simple class name of the first node that is one of {@code names} (separated by commas), or "". */
    public static String firstOf(LogicalPlan plan, String names) {
        String name = plan.getClass().getSimpleName();
        if (("," + names + ",").contains("," + name + ",")) {
            return name;
        }
        Seq[] below = new Seq[] {plan.children(), plan.innerChildren(), plan.subqueries()};
        for (int i = 0; i < below.length; i++) {
            Iterator each = below[i].iterator();
            while (each.hasNext()) {
                Object next = each.next();
                String found = next instanceof LogicalPlan ? firstOf((LogicalPlan) next, names) : "";
                if (!found.isEmpty()) {
                    return found;
                }
            }
        }
        return "";
    }
}
