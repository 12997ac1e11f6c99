package onager.spark43;

import java.util.Collections;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.concurrent.Callable;
import java.util.stream.Stream;
import onager.failure.RefusedException;
import onager.values.Seqs;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.PlanWithUnresolvedIdentifier;
import org.apache.spark.sql.catalyst.parser.ParameterContext;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ParsedStatement;
import org.apache.spark.sql.execution.SparkSqlParser;

/**
 * Sessions whose parser takes queries only. Spark carries a command out wherever it meets one, even while it plans: a message of Spark
 * Connect may have one in any relation.
 */
final class QueriesOnly {
    /** The one text that may be a command, of each session. */
    private static final Map<SparkSession, String> SESSIONS = Collections.synchronizedMap(new WeakHashMap<>());

    /** Plans that change data, or run statements, and are not commands to Spark's parser. */
    private static final Set<String> OTHERS = Set.of("CompoundBody", "InsertIntoDir", "InsertIntoStatement", "UnresolvedExecuteImmediate",
            "UnresolvedInsert");

    private QueriesOnly() {}

    /** Do *work*, in which *session* parses queries only, and *statement*. */
    static <T> T within(SparkSession session, String statement, Callable<T> work) throws Exception {
        SESSIONS.put(session, statement);
        try {
            return work.call();
        } finally {
            SESSIONS.remove(session);
        }
    }

    private static LogicalPlan checked(SparkSession session, String text, LogicalPlan plan) {
        String statement = SESSIONS.get(session);
        if (statement != null && !statement.equals(text)) {
            String command = command(plan);
            if (!command.isEmpty()) {
                throw new RefusedException("a relation with a command in it (" + command + ") is refused: give the statement to spark.sql");
            }
        }
        return plan;
    }

    /** Return the simple class name of the first command in a parsed *plan*; empty if it is a query. */
    static String command(LogicalPlan plan) {
        if (plan instanceof PlanWithUnresolvedIdentifier unnamed) {
            return command(unnamed.planBuilder().apply(Seqs.seq("name"), plan.children()));
        }
        if (plan instanceof Command || plan instanceof ParsedStatement || OTHERS.contains(plan.getClass().getSimpleName())) {
            return plan.getClass().getSimpleName();
        }
        return Stream.of(plan.children(), plan.innerChildren(), plan.subqueries()).flatMap(each -> Seqs.list(each).stream())
                .filter(LogicalPlan.class::isInstance).map(each -> command((LogicalPlan) each)).filter(found -> !found.isEmpty())
                .findFirst().orElse("");
    }

    /** Spark's parser of a session. */
    static final class Parser extends SparkSqlParser {
        private final SparkSession session;

        Parser(SparkSession session) {
            this.session = session;
        }

        @Override
        public LogicalPlan parsePlan(String text) {
            ScriptScope.follow(session);
            return checked(session, text, super.parsePlan(text));
        }

        @Override
        public LogicalPlan parsePlanWithParameters(String text, ParameterContext parameters) {
            ScriptScope.follow(session);
            return checked(session, text, super.parsePlanWithParameters(text, parameters));
        }
    }
}
