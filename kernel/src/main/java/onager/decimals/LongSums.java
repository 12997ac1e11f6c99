package onager.decimals;

import onager.spark43.Expressions;
import onager.values.Seqs;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.Average;
import org.apache.spark.sql.catalyst.expressions.aggregate.DeclarativeAggregate;
import org.apache.spark.sql.catalyst.expressions.aggregate.Sum;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.types.DecimalType;
import scala.collection.immutable.Seq;

/**
 * Has sums and averages of decimals added up in longs ({@link LongSum}), where Spark's own rule (`DecimalAggregates`) leaves them to objects.
 * Sums of distinct values, of windows and of streams stay as they are. It is no rule of the optimizer, since other rules look for Spark's own
 * sums; `spark.sql.optimizer.excludedRules` switches it off all the same, by the name of this class.
 */
public final class LongSums extends SparkStrategy {
    /** Digits up to which Spark's own rule changes a sum, and an average. */
    private static final int SPARKS_SUM = 8;
    private static final int SPARKS_AVERAGE = 11;

    private final SparkSession session;

    private LongSums(SparkSession session) {
        this.session = session;
    }

    /** Add the strategy. */
    public static void inject(SparkSessionExtensions extensions) {
        extensions.injectPlannerStrategy(session -> new LongSums((SparkSession) session));
    }

    @Override
    public Seq<SparkPlan> apply(LogicalPlan plan) {
        if (!(plan instanceof Aggregate aggregate) || aggregate.isStreaming() || isOff()) {
            return Seqs.seq();
        }
        var changed = aggregate.transformExpressionsDown(Seqs.change(AggregateExpression.class, LongSums::changed));
        return changed == aggregate ? Seqs.seq() : Seqs.seq(planLater(changed));
    }

    private boolean isOff() {
        var excluded = session.sessionState().conf().optimizerExcludedRules();
        return excluded.isDefined() && excluded.get().contains(LongSums.class.getName());
    }

    private static AggregateExpression changed(AggregateExpression each) {
        if (each.isDistinct() || !(each.aggregateFunction() instanceof DeclarativeAggregate function) || !isLeftBySpark(function)) {
            return each;
        }
        var child = function.children().head();
        // Spark computes what is never null behind the filter, and what may be null before it
        boolean isBehindFilter = each.filter().isDefined() && !child.nullable();
        return isBehindFilter || !child.deterministic() || Digits.of(child) == null ? each
                : Expressions.with(each, new LongSum(child, function));
    }

    private static boolean isLeftBySpark(DeclarativeAggregate function) {
        boolean isAverage = function instanceof Average;
        return (isAverage || function instanceof Sum) && function.children().head().dataType() instanceof DecimalType type
                && type.precision() > (isAverage ? SPARKS_AVERAGE : SPARKS_SUM);
    }
}
