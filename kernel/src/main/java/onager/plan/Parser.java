package onager.plan;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import onager.values.Json;
import onager.values.Seqs;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.analysis.LocalTempView$;
import org.apache.spark.sql.catalyst.analysis.UnresolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableOrView;
import org.apache.spark.sql.catalyst.analysis.UnresolvedView;
import org.apache.spark.sql.catalyst.parser.ParameterContext;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.plans.logical.AlterViewAs;
import org.apache.spark.sql.catalyst.plans.logical.CreateFunction;
import org.apache.spark.sql.catalyst.plans.logical.DropTable;
import org.apache.spark.sql.catalyst.plans.logical.DropView;
import org.apache.spark.sql.catalyst.plans.logical.InsertIntoDir;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation;
import org.apache.spark.sql.catalyst.plans.logical.Range;
import org.apache.spark.sql.catalyst.plans.logical.RenameTable;
import org.apache.spark.sql.catalyst.plans.logical.SetVariable;
import org.apache.spark.sql.catalyst.plans.logical.UnresolvedWith;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.CommandExecutionMode;
import org.apache.spark.sql.execution.command.CreateFunctionCommand;
import org.apache.spark.sql.execution.command.CreateSQLFunctionCommand;
import org.apache.spark.sql.execution.command.CreateViewCommand;
import org.apache.spark.sql.execution.command.DropFunctionCommand;
import org.apache.spark.sql.execution.command.SetCommand;
import org.apache.spark.sql.execution.datasources.CreateTempViewUsing;

/** Parses statements in a session: one call says of a statement all that the planner judges it by. */
public final class Parser {
    private final SparkSession session;
    private final String modifying;
    private final List<LogicalPlan> parsed = new ArrayList<>();

    /** *modifying*: the simple names of classes of plans that change data, separated by commas. */
    public Parser(SparkSession session, String modifying) {
        this.session = session;
        this.modifying = modifying;
    }

    /** Where `INSERT OVERWRITE DIRECTORY` writes; null: the statement does not say it. */
    record Directory(String format, String location, Map<String, String> options) {}

    /**
     * A statement. *kind* is the simple name of its class ({@code $} at its end: an object), *named* the name with each IDENTIFIER(…) resolved,
     * *below* that of what is below WITH. *modifies* is the class of the first part that changes data ("": none), *queryModifies* that within
     * the query which a *directory* gets. *view* is the view that it makes, or the single name of what it drops or alters. *isLocal*: views and
     * functions that it makes or drops are the session's own. *hasFiles*: a function brings some. *assigned* is the key of SET (""), and
     * *hasValue* whether there is a value.
     */
    record Facts(int place, String kind, String named, String below, boolean isCommand, String modifies, String queryModifies, String view,
            boolean isLocal, boolean hasFiles, String assigned, boolean hasValue, Directory directory) {}

    /** Parses *text*, whose places get the values of *parameters*, unless null; returns `Facts` as JSON. */
    public String parse(String text, ParameterContext parameters) throws ParseException {
        var sql = session.sessionState().sqlParser();
        LogicalPlan plan = parameters == null ? sql.parsePlan(text) : sql.parsePlanWithParameters(text, parameters);
        parsed.add(plan);
        LogicalPlan named = Queries.named(plan);
        LogicalPlan below = Queries.named(plan instanceof UnresolvedWith with ? with.child() : plan);
        String modifies = Queries.firstOf(plan, modifying);
        String view = view(plan, named);
        var set = plan instanceof SetCommand command && command.kv().isDefined() ? command.kv().get() : null;
        return Json.text(new Facts(parsed.size() - 1, plan.getClass().getSimpleName(), className(named), className(below), Queries.isCommand(plan),
                modifies, query(plan) == plan ? modifies : Queries.firstOf(query(plan), modifying), view, isLocal(named), hasFiles(named),
                set == null ? "" : set._1(), set != null && set._2().isDefined(), below instanceof InsertIntoDir insert ? directory(insert) : null));
    }

    /** Returns the statement at *place* of those that were parsed. */
    public LogicalPlan plan(int place) {
        return parsed.get(place);
    }

    /** Returns whether there is now a temporary view *name*. */
    public boolean hasView(String name) {
        return session.sessionState().catalog().getTempView(name).isDefined();
    }

    /** Returns the rows of the statement at *place*, or of its query that a directory gets; a command runs now. */
    public Dataset<Row> rows(int place) {
        return Dataset.ofRows(session, query(parsed.get(place)));
    }

    /** Whether the value that the SET VAR at *place* gives comes from a table, a view or files, which need not be there. */
    public boolean readsRows(int place) {
        LogicalPlan source = ((SetVariable) parsed.get(place)).sourceQuery();
        return !Queries.firstOf(source, "UnresolvedRelation").isEmpty()
                || readsRows(session.sessionState().executePlan(source, CommandExecutionMode.SKIP()).analyzed());
    }

    private static boolean readsRows(LogicalPlan plan) {
        List<LogicalPlan> below = Queries.below(plan).toList();
        boolean isOfValues = plan instanceof OneRowRelation || plan instanceof LocalRelation || plan instanceof Range;
        return below.isEmpty() ? !isOfValues : below.stream().anyMatch(Parser::readsRows);
    }

    /** Returns the query that a directory gets, or else *plan*. */
    private static LogicalPlan query(LogicalPlan plan) {
        if (plan instanceof UnresolvedWith with && with.child() instanceof InsertIntoDir insert) {
            return with.withNewChildren(Seqs.seq(insert.child()));
        }
        return plan instanceof InsertIntoDir insert ? insert.child() : plan;
    }

    static String className(LogicalPlan plan) {
        return plan.getClass().getSimpleName().replaceFirst("\\$$", "");
    }

    private static Directory directory(InsertIntoDir insert) {
        var storage = insert.storage();
        return new Directory(insert.provider().getOrElse(() -> ""), storage.locationUri().isDefined() ? storage.locationUri().get().toString() : "",
                scala.jdk.javaapi.CollectionConverters.asJava(storage.properties()));
    }

    private static String view(LogicalPlan plan, LogicalPlan named) {
        if (named instanceof CreateTempViewUsing view) {
            return view.tableIdent().table();
        } else if (named instanceof CreateViewCommand view) {
            return view.name().table();
        } else if (named instanceof DropTable || named instanceof DropView) {
            return named.children().head() instanceof UnresolvedIdentifier name ? single(name.nameParts()) : "";
        } else if (plan instanceof AlterViewAs || plan instanceof RenameTable) {
            LogicalPlan child = plan.children().head();
            return child instanceof UnresolvedView view ? single(view.multipartIdentifier())
                    : child instanceof UnresolvedTableOrView table ? single(table.multipartIdentifier()) : "";
        }
        return "";
    }

    private static String single(scala.collection.immutable.Seq<String> parts) {
        return parts.size() == 1 ? parts.head() : "";
    }

    private static boolean isLocal(LogicalPlan plan) {
        return plan instanceof CreateTempViewUsing using && !using.global()
                || plan instanceof CreateViewCommand view && view.viewType() == LocalTempView$.MODULE$
                || plan instanceof CreateFunctionCommand made && made.isTemp() || plan instanceof CreateSQLFunctionCommand sql && sql.isTemp()
                || plan instanceof DropFunctionCommand drop && drop.isTemp();
    }

    private static boolean hasFiles(LogicalPlan plan) {
        return plan instanceof CreateFunction made && !made.resources().isEmpty()
                || plan instanceof CreateFunctionCommand command && !command.resources().isEmpty();
    }
}
