package onager.catalog;

import onager.values.Seqs;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/** Brings the rule that reads tables of other catalogs as relations of their files. */
public final class ForeignTables extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {
    @Override
    public BoxedUnit apply(SparkSessionExtensions extensions) {
        extensions.injectResolutionRule(session -> new Reads((SparkSession) session));
        return BoxedUnit.UNIT;
    }

    private static final class Reads extends Rule<LogicalPlan> {
        private final SparkSession session;

        Reads(SparkSession session) {
            this.session = session;
        }

        @Override
        public LogicalPlan apply(LogicalPlan plan) {
            return plan.resolveOperatorsUp(Seqs.change(DataSourceV2Relation.class,
                    read -> read.table() instanceof ForeignTable table ? table.relation(session, Seqs.list(read.output())) : read));
        }
    }
}
