package onager.spark43;

import java.net.URI;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import onager.values.Seqs;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.QueryPlanningTracker;
import org.apache.spark.sql.catalyst.catalog.CatalogUtils;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalog;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalogWithListener;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.util.CharVarcharUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.internal.NonClosableMutableURLClassLoader;
import org.apache.spark.sql.internal.SharedState;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/**
 * Sessions whose session catalog is another one than the process's. What else sessions share is kept for the next such session, because
 * Spark adds a listener, and a tab to its page, for each.
 */
public final class CatalogSessions {
    private static final Queue<Shared> FREE = new ConcurrentLinkedQueue<>();

    private CatalogSessions() {}

    /** What the sessions over one catalog share. */
    private static final class Shared extends SharedState {
        private final SharedState base;
        private volatile ExternalCatalogWithListener catalog = null;

        Shared(SparkContext sc, SharedState base) {
            super(sc, Seqs.map(java.util.Map.of()));
            this.base = base;
            // That of the process's own state learns of every query already.
            for (var listener : Seqs.each(statusStore().listener().iterator())) {
                sc.removeSparkListener(listener);
            }
        }

        @Override
        public ExternalCatalogWithListener externalCatalog() {
            return catalog;
        }

        @Override
        public NonClosableMutableURLClassLoader jarClassLoader() {
            return base.jarClassLoader();
        }
    }

    /** Return the directory of managed tables, as Spark has it. */
    public static URI warehouse(SparkSession session) {
        return CatalogUtils.stringToURI(session.sessionState().conf().warehousePath());
    }

    /** Return a new session like those of *base*, over *catalog*; `release` takes what it shares back. */
    public static SparkSession open(SparkSession base, ExternalCatalog catalog) {
        SparkContext sc = base.sparkContext();
        Shared shared = FREE.poll();
        while (shared != null && shared.sparkContext() != sc) {
            shared = FREE.poll(); // of a context that has stopped
        }
        shared = shared == null ? new Shared(sc, base.sharedState()) : shared;
        shared.catalog = new ExternalCatalogWithListener(catalog);
        return new SparkSession(sc, Option.apply(shared), Option.empty(), base.extensions(), base.initialSessionOptions(),
                Seqs.map(java.util.Map.of()));
    }

    /** Return the catalog over which *session* was opened; null for other sessions. */
    public static ExternalCatalog catalog(SparkSession session) {
        return session.sharedState() instanceof Shared && session.sessionState().catalog().externalCatalog() instanceof ExternalCatalogWithListener held
                ? held.unwrapped() : null;
    }

    /** Have *session* make what it makes when it is first needed. */
    public static void warmUp(SparkSession session) {
        session.withActive(() -> {
            var state = session.sessionState();
            state.analyzer();
            state.optimizer();
            return state.planner();
        });
    }

    /** End the use of *session*: nothing may run in it any more. */
    public static void release(SparkSession session) {
        if (session.sharedState() instanceof Shared shared) {
            session.sessionState().catalog().externalCatalog(); // the session keeps its catalog, whatever comes next
            shared.cacheManager().clearCache();
            shared.globalTempViewManager().clear();
            FREE.add(shared);
        }
    }

    /** Return the columns of a table that is made from *query*, whose columns are called *names*. */
    public static StructType schemaOfTable(LogicalPlan query, List<String> names) {
        StructField[] fields = query.schema().fields().clone();
        for (int i = 0; i < fields.length; i++) {
            fields[i] = new StructField(names.get(i), fields[i].dataType(), true, fields[i].metadata());
        }
        return CharVarcharUtils.getRawSchema(new StructType(fields).asNullable(), query.conf());
    }

    /** Return the statement *parsed*, analyzed and not run. */
    public static LogicalPlan analyzed(SparkSession session, LogicalPlan parsed) {
        return session.sessionState().analyzer().executeAndCheck(parsed, new QueryPlanningTracker(Option.empty()));
    }
}
