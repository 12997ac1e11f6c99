package onager.spark43;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import onager.values.Json;
import onager.values.Seqs;
import org.antlr.v4.runtime.Token;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAlias;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.analysis.UnresolvedExecuteImmediate;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnresolvedCursor;
import org.apache.spark.sql.catalyst.parser.NamedParameterContext;
import org.apache.spark.sql.catalyst.parser.ParameterHandler;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.SqlBaseLexer;
import org.apache.spark.sql.catalyst.plans.logical.CloseCursor;
import org.apache.spark.sql.catalyst.plans.logical.CompoundBody;
import org.apache.spark.sql.catalyst.plans.logical.CompoundPlanStatement;
import org.apache.spark.sql.catalyst.plans.logical.CreateVariable;
import org.apache.spark.sql.catalyst.plans.logical.DeclareCursor;
import org.apache.spark.sql.catalyst.plans.logical.ExceptionHandler;
import org.apache.spark.sql.catalyst.plans.logical.ExceptionHandlerType$;
import org.apache.spark.sql.catalyst.plans.logical.FetchCursor;
import org.apache.spark.sql.catalyst.plans.logical.ForStatement;
import org.apache.spark.sql.catalyst.plans.logical.IfElseStatement;
import org.apache.spark.sql.catalyst.plans.logical.IterateStatement;
import org.apache.spark.sql.catalyst.plans.logical.LeaveStatement;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.LoopStatement;
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation;
import org.apache.spark.sql.catalyst.plans.logical.OpenCursor;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.RepeatStatement;
import org.apache.spark.sql.catalyst.plans.logical.SearchedCaseStatement;
import org.apache.spark.sql.catalyst.plans.logical.SetVariable;
import org.apache.spark.sql.catalyst.plans.logical.SimpleCaseStatement;
import org.apache.spark.sql.catalyst.plans.logical.SingleStatement;
import org.apache.spark.sql.catalyst.plans.logical.WhileStatement;
import org.apache.spark.sql.catalyst.trees.Origin;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.CommandExecutionMode;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** A script of SQL (BEGIN … END), as Spark parses it, as JSON: its blocks, loops, handlers and statements. */
public final class ScriptTree {
    /** What the source of a SET may read that its session does not hold. */
    private static final Set<String> ROWS = Set.of("UnresolvedRelation", "PlanWithUnresolvedIdentifier");
    private static final String SET = "SET";
    /** A SET of variables outside of a script, where SET alone is about settings. */
    private static final String SET_VARIABLE = "SET VARIABLE";

    private static final Pattern DECLARES = Pattern.compile("declare\\b", Pattern.CASE_INSENSITIVE);

    private ScriptTree() {}

    /**
     * Return the script in *text* as JSON; an empty text if it is something else; Spark's errors. *names*: those of the values in its places,
     * which are the columns of *values*, a plan.
     */
    public static String of(SparkSession session, String text, List<String> names, LogicalPlan values) throws ParseException {
        var parser = session.sessionState().sqlParser();
        if (!(parser.parsePlan(names.isEmpty() ? text : bound(session, text, names, values)) instanceof CompoundBody body)) {
            return "";
        }
        var isCaseSensitive = session.sessionState().conf().caseSensitiveAnalysis();
        return Json.text(Map.of("body", body(body), "is_case_sensitive", isCaseSensitive));
    }

    private static String bound(SparkSession session, String text, List<String> names, LogicalPlan values) {
        var columns = ((Project) session.sessionState().executePlan(values, CommandExecutionMode.SKIP()).analyzed()).projectList();
        Map<String, Expression> given = new HashMap<>();
        for (int at = 0; at < names.size(); at++) {
            given.put(names.get(at), columns.apply(at) instanceof Alias alias ? alias.child() : (Expression) columns.apply(at));
        }
        Map<String, Expression> literals = new HashMap<>(CollectionConverters.asJava(session.resolveAndValidateParameters(Seqs.map(given))));
        return ParameterHandler.substituteParameters(text, new NamedParameterContext(Seqs.map(literals)))._1();
    }

    /** Return the plan of *text*, a statement of a script. */
    static LogicalPlan statement(SparkSession session, String text) throws ParseException {
        String inScript = text.startsWith(SET_VARIABLE) ? SET + text.substring(SET_VARIABLE.length()) : text;
        var script = (CompoundBody) session.sessionState().sqlParser().parsePlan("BEGIN\n" + inScript + "\n;END");
        return ((SingleStatement) script.collection().head()).parsedPlan();
    }

    /** Return what *plan*, a statement, is to a script. */
    static String kind(LogicalPlan plan) {
        if (plan instanceof UnresolvedExecuteImmediate) {
            return "immediate";
        }
        return QueriesOnly.command(plan).isEmpty() ? "query" : "command";
    }

    private static Map<String, Object> body(CompoundBody body) {
        var found = node("body");
        found.put("label", orEmpty(body.label()));
        found.put("is_scope", body.isScope());
        found.put("statements", Seqs.list(body.collection()).stream().map(ScriptTree::node).toList());
        found.put("handlers", Seqs.list(body.handlers()).stream().map(ScriptTree::handler).toList());
        return found;
    }

    private static Map<String, Object> handler(ExceptionHandler handler) {
        var triggers = handler.exceptionHandlerTriggers();
        var found = node("handler");
        found.put("is_exit", handler.handlerType().equals(ExceptionHandlerType$.MODULE$.EXIT()));
        found.put("conditions", Seqs.list(triggers.conditions().toSeq()));
        found.put("sql_states", Seqs.list(triggers.sqlStates().toSeq()));
        found.put("not_found", triggers.notFound());
        found.put("sql_exception", triggers.sqlException());
        found.put("body", body(handler.body()));
        return found;
    }

    private static Map<String, Object> node(CompoundPlanStatement node) {
        if (node instanceof CompoundBody body) {
            return body(body);
        } else if (node instanceof SingleStatement statement) {
            return statement(statement);
        } else if (node instanceof IfElseStatement branches) {
            return branches(Seqs.list(branches.conditions()), Seqs.list(branches.conditionalBodies()), branches.elseBody());
        } else if (node instanceof SearchedCaseStatement branches) {
            return branches(Seqs.list(branches.conditions()), Seqs.list(branches.conditionalBodies()), branches.elseBody());
        } else if (node instanceof SimpleCaseStatement branches) {
            return branches(branches);
        } else if (node instanceof WhileStatement loop) {
            return loop("while", loop.label(), loop.body(), condition(loop.condition()));
        } else if (node instanceof RepeatStatement loop) {
            return loop("repeat", loop.label(), loop.body(), condition(loop.condition()));
        } else if (node instanceof LoopStatement loop) {
            return loop("loop", loop.label(), loop.body(), null);
        } else if (node instanceof ForStatement loop) {
            var found = loop("for", loop.label(), loop.body(), condition(loop.query()));
            found.put("variable", orEmpty(loop.variableName()));
            return found;
        } else if (node instanceof LeaveStatement leave) {
            return leaving("leave", leave.label());
        } else if (node instanceof IterateStatement iterate) {
            return leaving("iterate", iterate.label());
        }
        throw new IllegalStateException("a script has a " + node.getClass().getSimpleName() + ", which is not known here");
    }

    private static Map<String, Object> branches(List<SingleStatement> conditions, List<CompoundBody> bodies, Option<CompoundBody> last) {
        var found = node("if");
        found.put("conditions", conditions.stream().map(ScriptTree::condition).toList());
        return with(found, bodies, last);
    }

    private static Map<String, Object> branches(SimpleCaseStatement branches) {
        var found = node("case");
        found.put("value", text(branches.caseVariableExpression().origin()));
        found.put("conditions", Seqs.list(branches.conditionExpressions()).stream().map(each -> text(each.origin())).toList());
        return with(found, Seqs.list(branches.conditionalBodies()), branches.elseBody());
    }

    private static Map<String, Object> with(Map<String, Object> found, List<CompoundBody> bodies, Option<CompoundBody> last) {
        found.put("bodies", bodies.stream().map(ScriptTree::body).toList());
        found.put("last", last.isDefined() ? body(last.get()) : null);
        return found;
    }

    private static Map<String, Object> loop(String kind, Option<String> label, CompoundBody body, Map<String, Object> over) {
        var found = node(kind);
        found.put("label", orEmpty(label));
        found.put("body", body(body));
        found.put("over", over);
        return found;
    }

    private static Map<String, Object> leaving(String kind, String label) {
        var found = node(kind);
        found.put("label", label);
        return found;
    }

    private static Map<String, Object> node(String kind) {
        var found = new LinkedHashMap<String, Object>();
        found.put("kind", kind);
        return found;
    }

    private static Map<String, Object> condition(SingleStatement statement) {
        return text(statement.origin());
    }

    private static Map<String, Object> statement(SingleStatement statement) {
        LogicalPlan plan = statement.parsedPlan();
        Map<String, Object> found = node("statement");
        found.putAll(text(statement.origin()));
        String what = kind(plan);
        boolean isDeclared = plan instanceof CreateVariable || plan instanceof DeclareCursor;
        if (!isDeclared && DECLARES.matcher((String) found.get("text")).lookingAt()) {
            found.put("text", handled((String) found.get("text")));
        }
        if (plan instanceof SetVariable set) {
            what = "set";
            set(found, set);
        } else if (isDeclared) {
            what = "declare";
        } else if (plan instanceof OpenCursor) {
            what = "open";
        } else if (plan instanceof CloseCursor) {
            what = "close";
        } else if (plan instanceof FetchCursor fetch) {
            what = "fetch";
            found.put("cursor", Seqs.list(((UnresolvedCursor) fetch.cursor()).nameParts()));
        }
        found.put("what", what);
        return found;
    }

    /** Note of a SET its targets, and the query that gives their values if that reads tables or views. */
    private static void set(Map<String, Object> found, SetVariable set) {
        String text = (String) found.get("text");
        found.put("text", SET_VARIABLE + text.substring(SET.length()));
        found.put("targets", Seqs.list(set.targetVariables()).stream().map(Expression::sql).toList());
        found.put("source", readsRows(set.sourceQuery()) ? source(set.sourceQuery()) : "");
    }

    private static boolean readsRows(LogicalPlan plan) {
        return ROWS.contains(plan.getClass().getSimpleName()) || Stream.of(plan.children(), plan.innerChildren(), plan.subqueries())
                .flatMap(each -> Seqs.list(each).stream()).anyMatch(each -> each instanceof LogicalPlan inner && readsRows(inner));
    }

    private static String source(LogicalPlan query) {
        if (!(query instanceof Project project && project.child() instanceof OneRowRelation)) {
            return (String) text(query.origin()).get("text");
        }
        var texts = new ArrayList<String>();
        for (var value : Seqs.list(project.projectList())) {
            if (value instanceof UnresolvedAttribute name && name.sql().equalsIgnoreCase("DEFAULT")) {
                return ""; // Spark knows what it stands for
            }
            Expression inner = value instanceof UnresolvedAlias alias ? alias.child() : value instanceof Alias alias ? alias.child() : (Expression) value;
            texts.add((String) text(inner.origin()).get("text"));
        }
        return texts.contains("") ? "" : "SELECT " + String.join(",\n", texts);
    }

    /** Return the text that *origin* is about, with its place in the script: lines from 1. */
    private static Map<String, Object> text(Origin origin) {
        var found = new LinkedHashMap<String, Object>();
        boolean isKnown = origin.sqlText().isDefined() && origin.startIndex().isDefined() && origin.stopIndex().isDefined();
        found.put("text", isKnown ? part(origin.sqlText().get(), index(origin.startIndex()), index(origin.stopIndex()) + 1) : "");
        found.put("line", origin.line().isDefined() ? index(origin.line()) : 0);
        return found;
    }

    /** Return the part of *text* between two places that are counted in code points, as Spark's lexer does. */
    private static String part(String text, int begin, int end) {
        return text.substring(text.offsetByCodePoints(0, begin), text.offsetByCodePoints(0, end));
    }

    /** Return the statement of *text*, which declares a handler of one statement: what comes after its conditions. */
    private static String handled(String text) {
        SqlBaseLexer lexer = Lookups.lexer(text);
        Token token = next(lexer);
        while (token.getType() != SqlBaseLexer.FOR) {
            token = next(lexer);
        }
        do {
            token = next(lexer);
            if (token.getType() == SqlBaseLexer.SQLSTATE) {
                token = next(lexer);
                token = token.getType() == SqlBaseLexer.VALUE ? next(lexer) : token;
            } else if (token.getType() == SqlBaseLexer.NOT) {
                token = next(lexer);
            }
            token = next(lexer);
            while (token.getType() == SqlBaseLexer.DOT) {
                next(lexer);
                token = next(lexer);
            }
        } while (token.getType() == SqlBaseLexer.COMMA);
        return part(text, token.getStartIndex(), text.codePointCount(0, text.length()));
    }

    private static Token next(SqlBaseLexer lexer) {
        Token token = lexer.nextToken();
        while (token.getChannel() != Token.DEFAULT_CHANNEL) {
            token = lexer.nextToken();
        }
        return token;
    }

    private static int index(Option<Object> place) {
        return (Integer) place.get();
    }

    private static String orEmpty(Option<String> name) {
        return name.isDefined() ? name.get() : "";
    }
}
