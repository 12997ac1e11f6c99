package onager.plan;

import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Stream;
import onager.spark43.Files;
import onager.values.Json;
import onager.values.Seqs;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.analysis.PlanWithUnresolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.ResolvedInlineTable;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.Expand;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Generate;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ParsedStatement;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Range;
import org.apache.spark.sql.catalyst.plans.logical.Statistics;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkPlan$;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.execution.command.ExplainCommand;
import org.apache.spark.sql.execution.datasources.CatalogFileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.FileTable;
import scala.collection.immutable.Seq;
import scala.math.BigInt;

/** Facts about queries that their logical plans tell. */
public final class Queries {
    static final BigInt MAX_NUMBERS = BigInt.apply(1L << 50);

    /** Rows of the driver and rows in the query's text, for which Spark gives no size. */
    private static final Set<Class<?>> SIZELESS = Set.of(LogicalRDD.class, ResolvedInlineTable.class);

    private static final long MAX_BYTES = 1L << 60;

    private Queries() {}

    /** Returns *plan* with an IDENTIFIER(…) replaced by a placeholder name; other plans stay unchanged. */
    public static LogicalPlan named(LogicalPlan plan) {
        return plan instanceof PlanWithUnresolvedIdentifier unnamed
                ? unnamed.planBuilder().apply(Seqs.seq("name"), plan.children())
                : plan;
    }

    /** Returns whether a parsed statement is a command rather than a query. */
    public static boolean isCommand(LogicalPlan plan) {
        LogicalPlan named = named(plan);
        return named instanceof Command || named instanceof ParsedStatement;
    }

    /**
     * Returns how many bytes a query reads; -1 if a source does not say. For an analyzed plan, nothing is pruned; for an optimized one,
     * unneeded columns do not count.
     *
     * <p>A range counts 8 bytes per number, local rows count by Spark's estimate, and an RDD of the driver counts 0. Partitions of a
     * table are listed only if it *isOptimized*, so that a query needs those that are left; otherwise they count as very large.
     */
    public static long inputBytes(LogicalPlan plan, boolean isOptimized) {
        return inputBytes(plan, isOptimized, null);
    }

    /** What an analyzed query gives and reads: *schema* is JSON, *roots* the files and directories as URIs. */
    record Facts(String schema, long inputBytes, Set<String> roots) {}

    /** Returns `Facts` of a query as JSON. A command, such as SHOW TABLES, has already run; then it is its rows. */
    public static String facts(Dataset<Row> query) {
        LogicalPlan analyzed = query.queryExecution().commandExecuted();
        var roots = new TreeSet<String>();
        addRoots(analyzed, roots);
        return Json.text(new Facts(query.schema().json(), inputBytes(analyzed, false), roots));
    }

    /** Returns *query* planned anew, under what are now the settings of *session*. */
    public static Dataset<Row> planned(SparkSession session, Dataset<Row> query) {
        return Dataset.ofRows(session, query.queryExecution().commandExecuted());
    }

    /** Returns how many bytes of its input *query* needs; -1 if a source does not say. */
    public static long neededBytes(Dataset<Row> query) {
        return inputBytes(query.queryExecution().optimizedPlan(), true);
    }

    /** Returns the physical plan of *query*. */
    public static SparkPlan executed(Dataset<Row> query) {
        return query.queryExecution().executedPlan();
    }

    private static void addRoots(LogicalPlan plan, Set<String> found) {
        if (plan instanceof LogicalRelation files && files.relation() instanceof HadoopFsRelation relation) {
            StoredFiles.roots(relation.location()).forEach(found::add);
        } else if (plan instanceof DataSourceV2Relation source && source.table() instanceof FileTable table) {
            StoredFiles.roots(table.fileIndex()).forEach(found::add);
        }
        below(plan).forEach(each -> addRoots(each, found));
    }

    private static long fileBytes(HadoopFsRelation relation, boolean isOptimized) {
        if (relation.location() instanceof CatalogFileIndex table) {
            return isOptimized ? table.filterPartitions(Seqs.seq()).sizeInBytes() : MAX_BYTES;
        }
        return relation.location().sizeInBytes();
    }

    /** *needed*: the attributes that are used above; null: all. */
    private static long inputBytes(LogicalPlan plan, boolean isOptimized, AttributeSet needed) {
        long total = 0;
        if (plan instanceof LogicalRelation files && files.relation() instanceof HadoopFsRelation relation) {
            long bytes = fileBytes(relation, isOptimized);
            total = needed == null ? bytes : (long) (bytes * columnShare(relation, widths(plan.output(), needed)));
            if (relation.location() instanceof GrowingFileIndex) {
                total = Math.max(total, GrowingFileIndex.LEAST_BYTES); // however narrow its columns are
            }
        } else if (plan instanceof InMemoryRelation cached) { // what its rows were made of
            var made = Outline.unwrapped(cached.cachedPlan()).logicalLink();
            return made.isEmpty() ? -1 : inputBytes(made.get(), true);
        } else if (plan instanceof Range range) {
            total = 8L * Math.max(0L, range.numElements().min(MAX_NUMBERS).toLong());
        } else if (!SIZELESS.contains(plan.getClass()) && plan.children().isEmpty() && plan.subqueries().isEmpty()
                && plan.innerChildren().isEmpty()) {
            total = stats(plan).map(stats -> plain(stats.sizeInBytes())).orElse(-1L);
            if (total < 0) {
                return -1;
            }
        }
        AttributeSet below = null;
        if (plan instanceof Project || plan instanceof Aggregate) {
            below = plan.references();
        } else if (plan instanceof Filter && needed != null) {
            below = needed.$plus$plus(plan.references());
        }
        for (var sources : List.of(Seqs.list(plan.children()), Seqs.list(plan.subqueries()))) {
            for (var source : sources) {
                long bytes = inputBytes(source, isOptimized, below);
                if (bytes < 0) {
                    return -1;
                }
                total = Math.min(total + bytes, MAX_BYTES);
            }
            below = null;
        }
        return total;
    }

    private static long widths(Seq<Attribute> attributes, AttributeSet needed) {
        return Seqs.list(attributes).stream().filter(needed::contains).mapToLong(each -> each.dataType().defaultSize()).sum();
    }

    /** Returns the approximate share of a relation's files that columns of *widths* bytes per row take; 1 for row formats. */
    static double columnShare(HadoopFsRelation relation, long widths) {
        long all = relation.dataSchema().defaultSize();
        return Files.isColumnar(relation.fileFormat()) && all > 0 ? Math.min(1.0, Math.max(widths, 1L) / (double) all) : 1.0;
    }

    /**
     * Returns how many rows Spark expected of *plan* when it planned it; -1 where it had no idea.
     *
     * <p>Without statistics, Spark takes sizes of files for rows of the columns' usual widths. Of a join it then has no more than the product
     * of both sides, which is no estimate.
     */
    public static long expectedRows(SparkPlan plan) {
        var link = plan.getTagValue(SparkPlan$.MODULE$.LOGICAL_PLAN_TAG()); // not one that it shares, as a partial aggregate does
        if (link.isEmpty()) {
            return -1;
        }
        var stats = stats(link.get());
        if (stats.isPresent() && stats.get().rowCount().isDefined()) {
            return plain(stats.get().rowCount().get());
        }
        if (stats.isEmpty() || guesses(link.get())) {
            return -1;
        }
        long width = 8L + Seqs.list(link.get().output()).stream().mapToLong(each -> each.dataType().defaultSize()).sum();
        long bytes = plain(stats.get().sizeInBytes());
        return bytes < 0 ? -1 : bytes / width;
    }

    /** Returns Spark's estimates of *plan*, if it has any: a source may fail at them, and a TRANSPOSE has none before it is optimized. */
    private static Optional<Statistics> stats(LogicalPlan plan) {
        try {
            return Optional.of(plan.stats());
        } catch (RuntimeException e) { // an estimate is not worth a failure
            return Optional.empty();
        }
    }

    private static boolean guesses(LogicalPlan plan) {
        return plan instanceof Join || plan instanceof Generate || plan instanceof Expand
                || Seqs.list(plan.children()).stream().anyMatch(Queries::guesses);
    }

    private static long plain(BigInt number) {
        return number.isValidLong() && number.toLong() < MAX_BYTES ? number.toLong() : -1;
    }

    /** Returns all logical plans directly below *plan*. */
    static Stream<LogicalPlan> below(LogicalPlan plan) {
        return Stream.of(plan.children(), plan.innerChildren(), plan.subqueries()).flatMap(each -> Seqs.list(each).stream())
                .filter(LogicalPlan.class::isInstance).map(LogicalPlan.class::cast);
    }

    /** Returns the simple class name of the first node that is one of *names* (separated by commas), or "". */
    public static String firstOf(LogicalPlan parsed, String names) {
        LogicalPlan plan = named(parsed);
        if (plan instanceof ExplainCommand explain) {
            // EXPLAIN only analyzes its query, but this statement runs when it is analyzed.
            return firstOf(explain.logicalPlan(), "UnresolvedExecuteImmediate");
        }
        String name = plan.getClass().getSimpleName();
        if (("," + names + ",").contains("," + name + ",")) {
            return name;
        }
        return below(plan).map(each -> firstOf(each, names)).filter(found -> !found.isEmpty()).findFirst().orElse("");
    }
}
