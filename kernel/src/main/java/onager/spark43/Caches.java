package onager.spark43;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import onager.values.Seqs;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.storage.StorageLevel;
import scala.Option;

/**
 * What a program caches, in a session that is nobody else's. Spark's own cache manager gets of it what a query reads, once it is to be planned:
 * from then on Spark plans scans of cached rows, which no process holds.
 */
public final class Caches {
    private final SparkSession session;
    private final Map<String, Cached> known = new LinkedHashMap<>();

    /** *key*: the plan as Spark compares it. *table*: null for a DataFrame. */
    private record Cached(LogicalPlan analyzed, LogicalPlan key, StorageLevel level, String table) {}

    public Caches(SparkSession session) {
        this.session = session;
    }

    /** Add *frame* as *id*, unless it is cached already, or at no level, as in Spark; return whether it was added. */
    public boolean add(String id, Dataset<Row> frame, StorageLevel level, String table) {
        LogicalPlan analyzed = frame.queryExecution().analyzed();
        LogicalPlan key = frame.queryExecution().normalized();
        if (level.equals(StorageLevel.NONE()) || analyzed instanceof Command || equal(key) != null) {
            return false;
        }
        known.put(id, new Cached(analyzed, key, level, table));
        return true;
    }

    /** Return what caches *frame* itself, and, if it *cascades*, what caches something that is made of it. */
    public List<String> of(Dataset<Row> frame, boolean cascades) {
        LogicalPlan key = frame.queryExecution().normalized();
        return known.entrySet().stream().filter(each -> cascades ? contains(each.getValue().key, key) : each.getValue().key.sameResult(key))
                .map(Map.Entry::getKey).toList();
    }

    /** Return what *query* reads, directly or through others, in the order in which it was added. */
    public List<String> readBy(Dataset<Row> query) {
        var order = List.copyOf(known.keySet());
        Set<Integer> found = new TreeSet<>();
        read(QueryExecution.normalize(session, query.queryExecution().commandExecuted(), Option.empty()), order, order.size(), found);
        return found.stream().map(order::get).toList();
    }

    /** *before*: only what was added before that one counts, since Spark plans what is cached when that is asked for. */
    private void read(LogicalPlan plan, List<String> order, int before, Set<Integer> found) {
        if (plan instanceof Command) {
            return;
        }
        for (int i = 0; i < before; i++) {
            LogicalPlan key = known.get(order.get(i)).key;
            if (plan.sameResult(key)) {
                if (found.add(i)) {
                    read(key, order, i, found);
                }
                return;
            }
        }
        for (LogicalPlan each : below(plan)) {
            read(each, order, before, found);
        }
    }

    private static List<LogicalPlan> below(LogicalPlan plan) {
        var found = new ArrayList<LogicalPlan>(Seqs.list(plan.children()));
        Seqs.list(plan.subqueries()).forEach(found::add);
        return found;
    }

    private static boolean contains(LogicalPlan plan, LogicalPlan key) {
        return plan.sameResult(key) || below(plan).stream().anyMatch(each -> contains(each, key));
    }

    private String equal(LogicalPlan key) {
        return known.entrySet().stream().filter(each -> each.getValue().key.sameResult(key)).map(Map.Entry::getKey).findFirst().orElse(null);
    }

    /** Return the dataset *id*. */
    public Dataset<Row> frame(String id) {
        return Dataset.ofRows(session, known.get(id).analyzed);
    }

    /** Have Spark read *id* as cached, planned under what are now the session's settings; return the plan of its rows. */
    public SparkPlan cache(String id) {
        Cached cached = known.get(id);
        session.sharedState().cacheManager().cacheQuery(session, cached.analyzed, Option.apply(cached.table), cached.level);
        InMemoryRelation made = session.sharedState().cacheManager().lookupCachedData(session, cached.analyzed).get().cachedRepresentation();
        return made.cachedPlan();
    }

    /** Have Spark read nothing as cached any more. */
    public void release() {
        session.sharedState().cacheManager().clearCache();
    }
}
