package onager.catalog;

import java.util.stream.Stream;
import onager.spark43.CatalogSessions;
import onager.values.Seqs;
import org.apache.spark.sql.catalyst.analysis.FakeSystemCatalog$;
import org.apache.spark.sql.catalyst.analysis.ResolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.ResolvedNamespace;
import org.apache.spark.sql.catalyst.analysis.ResolvedPersistentFunc;
import org.apache.spark.sql.catalyst.analysis.ResolvedPersistentView;
import org.apache.spark.sql.catalyst.analysis.ResolvedTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.execution.datasources.v2.V2SessionCatalog;

/** What statements that change a catalog would change. */
public final class Statements {
    private Statements() {}

    /** Returns the name of a catalog other than the session's own that the statement *parsed* names, or "". */
    public static String otherCatalog(SparkSession session, LogicalPlan parsed) {
        return catalogs(CatalogSessions.analyzed(session, parsed))
                .filter(each -> !(each instanceof V2SessionCatalog) && each != FakeSystemCatalog$.MODULE$)
                .map(CatalogPlugin::name).findFirst().orElse("");
    }

    private static Stream<CatalogPlugin> catalogs(LogicalPlan plan) {
        CatalogPlugin own = plan instanceof ResolvedNamespace named ? named.catalog()
                : plan instanceof ResolvedTable table ? table.catalog()
                : plan instanceof ResolvedIdentifier name ? name.catalog()
                : plan instanceof ResolvedPersistentView view ? view.catalog()
                : plan instanceof ResolvedPersistentFunc function ? function.catalog()
                : null;
        return Stream.concat(Stream.ofNullable(own), Seqs.list(plan.children()).stream().flatMap(Statements::catalogs));
    }
}
