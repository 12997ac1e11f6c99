package onager.spark43;

import java.lang.reflect.Field;
import java.util.List;
import java.util.regex.Pattern;
import onager.access.JobSettings;
import onager.failure.RefusedException;
import onager.values.Seqs;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.internal.config.ConfigProvider;
import org.apache.spark.internal.config.ConfigReader;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkSqlParser;
import org.apache.spark.sql.execution.command.ResetCommand;
import org.apache.spark.sql.execution.command.SetCommand;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.internal.VariableSubstitution;
import scala.Option;
import scala.Tuple2;

/** Variables in SQL, `${name}`, as Spark has them, but for those of the environment, of Java, and of settings that are secrets. */
public final class Variables extends VariableSubstitution {
    private static final String REDACTED = "spark.redaction.regex";
    /** Source: Spark's default of `spark.redaction.regex`. */
    private static final String SECRET = "(?i)secret|password|token|access[.]?key";
    /**
     * Begins the name under which a session keeps a variable with a dot in its name: all that a session has reaches Hadoop's settings, too,
     * where such a name could mean something.
     */
    private static final String KEPT = "spark.onager.variable.";
    private static final String HIVE = "hivevar:";
    private static final Field SUBSTITUTOR = Fields.of(SparkSqlParser.class, "substitutor");

    private final ConfigReader reader;

    private Variables() {
        ConfigProvider settings = this::setting;
        this.reader = new ConfigReader(settings).bind("spark", settings).bind("sparkconf", settings).bind("hivevar", settings)
                .bind("hiveconf", settings)
                .bindEnv(name -> refused("env:" + name, "the environment of an executor"))
                .bindSystem(name -> refused("system:" + name, "the properties of an executor's JVM"));
    }

    /** Return what parses for *session* with these variables; throws an IllegalStateException if this Spark's parser has none. */
    public static ParserInterface parser(org.apache.spark.sql.SparkSession session, ParserInterface given) {
        if (!(given instanceof SparkSqlParser)) {
            return given;
        }
        try {
            var parser = new QueriesOnly.Parser(session);
            SUBSTITUTOR.set(parser, new Variables());
            return parser;
        } catch (IllegalAccessException e) {
            throw new IllegalStateException("the parser's variables cannot be replaced here", e);
        }
    }

    @Override
    public String substitute(String text) {
        return conf().variableSubstituteEnabled() ? reader.substitute(text) : text;
    }

    private Option<String> setting(String name) {
        if (isSecret(name)) {
            return refused(name, "a secret of the executors");
        }
        return Option.apply(value(conf(), name));
    }

    private static String value(SQLConf conf, String name) {
        return conf.getConfString(KEPT + name, conf.getConfString(name, ""));
    }

    /** Return the setting under which a session keeps *key*, a setting or a variable. */
    public static String kept(String key) {
        return JobSettings.isVariable(key) ? KEPT + key : key;
    }

    /** Return the name of the setting or variable *key* of a SET. */
    public static String name(String key) {
        return key.startsWith(HIVE) ? key.substring(HIVE.length()) : key;
    }

    /** Whether the *key* of a SET is a variable with a dot in its name, or what a session keeps it under. */
    public static boolean isOne(String key) {
        return key.startsWith(KEPT) || JobSettings.isVariable(name(key));
    }

    private static boolean isToKeep(String key) {
        return isOne(key) && !key.startsWith(KEPT);
    }

    /** Return *plan*, or what it stands for if it is SET or RESET of a variable with a dot in its name. */
    public static LogicalPlan resolved(SparkSession session, LogicalPlan plan) {
        if (plan instanceof ResetCommand reset && reset.config().isDefined() && isToKeep(reset.config().get())) {
            return new ResetCommand(Option.apply(KEPT + name(reset.config().get())));
        }
        if (!(plan instanceof SetCommand set) || set.kv().isEmpty() || !isToKeep(set.kv().get()._1())) {
            return plan;
        }
        String key = set.kv().get()._1();
        Option<String> value = set.kv().get()._2();
        if (value.isDefined()) {
            return new SetCommand(Option.apply(new Tuple2<>(KEPT + name(key), value)));
        }
        String shown = value(session.sessionState().conf(), name(key));
        return new Project(Seqs.<NamedExpression>seq(Expressions.alias(Literal$.MODULE$.apply(key), "key"),
                Expressions.alias(Literal$.MODULE$.apply(shown.isEmpty() ? "<undefined>" : shown), "value")), new OneRowRelation());
    }

    /** Throws if a session with *conf* would be shown settings that are hidden by what the executors' settings say. */
    public static void checkRedacted(SQLConf conf) {
        for (String key : List.of(REDACTED, "spark.sql.redaction.options.regex")) {
            String given = SparkEnv.get().conf().get(key, "");
            if (!conf.getConfString(key, given).equals(given)) {
                throw new RefusedException("settings are not listed, which no job reads under a " + key + " of its own: RESET " + key);
            }
        }
    }

    /** Whether *name* is a setting of the executors that no job sees. */
    public static boolean isSecret(String name) {
        SparkConf executors = SparkEnv.get().conf();
        return executors.contains(name) && Pattern.compile(executors.get(REDACTED, SECRET)).matcher(name).find();
    }

    private static Option<String> refused(String name, String what) {
        throw new RefusedException("${" + name + "} stands for " + what + ", which no job reads: give the value with the job (--param)");
    }
}
