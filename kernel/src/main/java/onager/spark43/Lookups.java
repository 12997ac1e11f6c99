package onager.spark43;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.function.BiConsumer;
import java.util.stream.Stream;
import onager.values.Seqs;
import org.antlr.v4.runtime.CharStreams;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry$;
import org.apache.spark.sql.catalyst.analysis.UnresolvedIdentifier;
import org.apache.spark.sql.catalyst.expressions.CreateMap;
import org.apache.spark.sql.catalyst.expressions.ExprUtils$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.expressions.aggregate.CollectList;
import org.apache.spark.sql.catalyst.expressions.aggregate.First;
import org.apache.spark.sql.catalyst.expressions.aggregate.HistogramNumeric;
import org.apache.spark.sql.catalyst.expressions.aggregate.Last;
import org.apache.spark.sql.catalyst.expressions.aggregate.ListAgg;
import org.apache.spark.sql.catalyst.expressions.aggregate.MaxBy;
import org.apache.spark.sql.catalyst.expressions.aggregate.MinBy;
import org.apache.spark.sql.catalyst.expressions.aggregate.Mode;
import org.apache.spark.sql.catalyst.parser.SqlBaseLexer;
import org.apache.spark.sql.catalyst.parser.UpperCaseCharStream;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.ApplyColumnarRulesAndInsertTransitions;
import org.apache.spark.sql.execution.CollapseCodegenStages;
import org.apache.spark.sql.execution.QueryExecution$;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.ShuffleQueryStageExec;
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec;
import org.apache.spark.sql.execution.columnar.InMemoryTableScanExec;
import org.apache.spark.sql.execution.command.SetCommand;
import org.apache.spark.sql.execution.datasources.CreateTempViewUsing;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import org.apache.spark.sql.execution.exchange.Exchange;
import org.apache.spark.sql.execution.joins.BaseJoinExec;
import org.apache.spark.sql.execution.python.MapInBatchExec;
import org.apache.spark.sql.execution.window.WindowExec;
import org.apache.spark.sql.internal.SQLConf$;
import scala.Function1;
import scala.Option;
import scala.Tuple3;
import scala.collection.immutable.Seq;

/** All look-ups in Spark by name or position. `check` resolves them, so that an executor does not start if one fails. */
public final class Lookups {
    /** Aggregates whose result depends on the order of their rows. */
    public static final Set<Class<? extends AggregateFunction>> BY_ORDER = Set.of(
            First.class, Last.class, CollectList.class, ListAgg.class, MaxBy.class, MinBy.class, Mode.class, HistogramNumeric.class);

    private static final Set<Class<?>> RULES = Set.of(ApplyColumnarRulesAndInsertTransitions.class, CollapseCodegenStages.class);
    private static final List<String> PACKAGES = Stream.of(SparkPlan.class, BaseAggregateExec.class, Exchange.class, BaseJoinExec.class,
            MapInBatchExec.class, WindowExec.class, BatchScanExec.class, InMemoryTableScanExec.class, ShuffleQueryStageExec.class, Partitioning.class, LogicalPlan.class, SetCommand.class,
            CreateTempViewUsing.class, UnresolvedIdentifier.class).map(Class::getPackageName).toList();

    private Lookups() {}

    /** Throw an IllegalStateException that names what this Spark lacks, including the operators, partitionings and statements *names*. */
    public static void check(SparkSession session, List<String> names) {
        rules(session);
        PythonSources.check();
        ProgramFiles.check();
        SessionVariables.check();
        ScriptScope.check();
        var missing = names.stream().filter(name -> !isThere(name)).toList();
        if (!missing.isEmpty()) {
            throw new IllegalStateException("there is no class " + String.join(", ", missing) + " here");
        }
    }

    private static boolean isThere(String name) {
        return PACKAGES.stream().anyMatch(each -> {
            try {
                Class.forName(each + "." + name, false, SparkPlan.class.getClassLoader());
                return true;
            } catch (ClassNotFoundException e) {
                return false;
            }
        });
    }

    /** Return the preparation rules that a fragment still needs, in Spark's order; throws if one no longer exists. */
    public static List<Rule<SparkPlan>> rules(SparkSession session) {
        return picked(QueryExecution$.MODULE$.preparations(session, Option.empty(), false));
    }

    /** Return the preparation rules among *all* that a fragment still needs. */
    public static List<Rule<SparkPlan>> picked(Seq<Rule<SparkPlan>> all) {
        var missing = new ArrayList<>(RULES);
        var found = Seqs.list(all).stream().filter(rule -> missing.remove(rule.getClass())).toList();
        if (!missing.isEmpty()) {
            throw new IllegalStateException("preparing a plan has no step " + missing.stream().map(Class::getSimpleName).toList() + " here");
        }
        return found;
    }

    /** Return Spark's function *name* with *builder* as its implementation. */
    public static Tuple3<FunctionIdentifier, ExpressionInfo, Function1<Seq<Expression>, Expression>> replaced(String name,
            Function1<Seq<Expression>, Expression> builder) {
        var identifier = new FunctionIdentifier(name);
        Option<ExpressionInfo> found = FunctionRegistry$.MODULE$.builtin().lookupFunction(identifier);
        if (found.isEmpty()) {
            throw new IllegalStateException("there is no function " + name + " here");
        }
        return new Tuple3<>(identifier, found.get(), builder);
    }

    /** Return Spark's function *name*, with *check* on each of the options that it is given after its first argument, the data. */
    public static Tuple3<FunctionIdentifier, ExpressionInfo, Function1<Seq<Expression>, Expression>> checked(String name,
            BiConsumer<String, String> check) {
        var builder = FunctionRegistry$.MODULE$.builtin().lookupFunctionBuilder(new FunctionIdentifier(name)).get();
        return replaced(name, arguments -> {
            for (Expression argument : Seqs.list(arguments).stream().skip(1).toList()) {
                if (argument instanceof CreateMap map) {
                    Seqs.each(ExprUtils$.MODULE$.convertToMapData(map).iterator()).forEach(each -> check.accept(each._1(), each._2()));
                }
            }
            return builder.apply(arguments);
        });
    }

    /** Return Spark's lexer for *text*, without error messages, which the parser gives. */
    public static SqlBaseLexer lexer(String text) {
        var lexer = new SqlBaseLexer(new UpperCaseCharStream(CharStreams.fromString(text)));
        lexer.removeErrorListeners();
        return lexer;
    }

    /** Return how many bytes a task may put into hash tables of joins that were planned as sort-merge joins. */
    public static long mostHashed(SparkSession session) {
        return (Long) session.sessionState().conf().getConf(SQLConf$.MODULE$.ADAPTIVE_MAX_SHUFFLE_HASH_JOIN_LOCAL_MAP_THRESHOLD());
    }
}
