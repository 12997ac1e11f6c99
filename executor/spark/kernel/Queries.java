package onager.kernel;

import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.PlanWithUnresolvedIdentifier;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ParsedStatement;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Range;
import org.apache.spark.sql.execution.command.ExplainCommand;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.math.BigInt;

/** What the planner asks of a query before Spark has made a physical plan of it. */
public final class Queries {
    private static final BigInt MOST_NUMBERS = BigInt.apply(1L << 50);

    /** Rows of the driver, and those that the query's text itself holds: Spark gives no size of either. */
    private static final Set SIZELESS = new HashSet(Arrays.asList(new Object[] {"LogicalRDD", "ResolvedInlineTable"}));

    private Queries() {}

    /** Returns the statement that *plan* becomes once Spark knows what an IDENTIFIER(…) in it says, with some name; others as they are. */
    public static LogicalPlan named(LogicalPlan plan) {
        return plan instanceof PlanWithUnresolvedIdentifier
                ? (LogicalPlan) ((PlanWithUnresolvedIdentifier) plan).planBuilder().apply(Kernel.seq(new Object[] {"name"}), plan.children())
                : plan;
    }

    /** Returns whether a parsed statement does something instead of giving rows. */
    public static boolean isCommand(LogicalPlan plan) {
        LogicalPlan named = named(plan);
        return named instanceof Command || named instanceof ParsedStatement;
    }

    /**
     * Returns the size of all that a query reads; -1 if a source does not say. Of an analyzed one that is before any pruning, of an
     * optimized one without the columns that it does not need.
     *
     * <p>A range counts 8 bytes a number, local rows by Spark's estimate, an RDD of the driver nothing.
     */
    public static long inputBytes(LogicalPlan plan) {
        return inputBytes(plan, null);
    }

    /** *needed*: the attributes that are used above, null if all are. */
    private static long inputBytes(LogicalPlan plan, AttributeSet needed) {
        long total = 0;
        if (plan instanceof LogicalRelation && ((LogicalRelation) plan).relation() instanceof HadoopFsRelation) {
            HadoopFsRelation relation = (HadoopFsRelation) ((LogicalRelation) plan).relation();
            long bytes = relation.location().sizeInBytes();
            total += needed == null ? bytes : (long) (bytes * columnShare(relation, widths(plan.output(), needed)));
        } else if (plan instanceof Range) {
            total += 8L * Math.max(0L, ((Range) plan).numElements().min(MOST_NUMBERS).toLong());
        } else if (SIZELESS.contains(plan.getClass().getSimpleName())) {
            total += 0;
        } else if (plan.children().isEmpty() && plan.subqueries().isEmpty() && plan.innerChildren().isEmpty()) {
            BigInt size = plan.stats().sizeInBytes();
            if (!size.isValidLong() || size.toLong() >= 1L << 60) {
                return -1;
            }
            total += size.toLong();
        }
        AttributeSet below = null;
        if (plan instanceof Project || plan instanceof Aggregate) {
            below = plan.references();
        } else if (plan instanceof Filter && needed != null) {
            below = needed.$plus$plus(plan.references());
        }
        Seq[] sources = new Seq[] {plan.children(), plan.subqueries()};
        for (int i = 0; i < sources.length; i++) {
            Iterator each = sources[i].iterator();
            while (each.hasNext()) {
                long bytes = inputBytes((LogicalPlan) each.next(), i == 0 ? below : null);
                if (bytes < 0) {
                    return -1;
                }
                total += bytes;
            }
        }
        return total;
    }

    private static long widths(Seq attributes, AttributeSet needed) {
        long sum = 0;
        Iterator each = attributes.iterator();
        while (each.hasNext()) {
            Attribute attribute = (Attribute) each.next();
            sum += needed.contains(attribute) ? attribute.dataType().defaultSize() : 0;
        }
        return sum;
    }

    /** Returns about which share of a relation's files columns of *widths* bytes a row take: all of it unless they lie apart. */
    static double columnShare(HadoopFsRelation relation, long widths) {
        String format = relation.fileFormat().getClass().getSimpleName();
        long all = relation.dataSchema().defaultSize();
        boolean apart = format.equals("ParquetFileFormat") || format.equals("OrcFileFormat");
        return apart && all > 0 ? Math.min(1.0, Math.max(widths, 1L) / (double) all) : 1.0;
    }

    /** Returns the simple class name of the first node that is one of {@code names} (separated by commas), or "". */
    public static String firstOf(LogicalPlan parsed, String names) {
        LogicalPlan plan = named(parsed);
        if (plan instanceof ExplainCommand) {
            // What is explained is analyzed, and not run; this one is run when it is analyzed.
            return firstOf(((ExplainCommand) plan).logicalPlan(), "UnresolvedExecuteImmediate");
        }
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
