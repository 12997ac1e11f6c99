package onager.spark43;

import java.lang.reflect.Field;
import java.util.regex.Pattern;
import onager.failure.RefusedException;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.internal.config.ConfigProvider;
import org.apache.spark.internal.config.ConfigReader;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.execution.SparkSqlParser;
import org.apache.spark.sql.internal.VariableSubstitution;
import scala.Option;

/** Variables in SQL, `${name}`, as Spark has them, but for those of the environment, of Java, and of settings that are secrets. */
public final class Variables extends VariableSubstitution {
    private static final String REDACTED = "spark.redaction.regex";
    /** Source: Spark's default of `spark.redaction.regex`. */
    private static final String SECRET = "(?i)secret|password|token|access[.]?key";
    private static final Field SUBSTITUTOR = Fields.of(SparkSqlParser.class, "substitutor");

    private final ConfigReader reader;

    private Variables() {
        ConfigProvider settings = this::setting;
        this.reader = new ConfigReader(settings).bind("spark", settings).bind("sparkconf", settings).bind("hivevar", settings)
                .bind("hiveconf", settings)
                .bindEnv(name -> refused("env:" + name, "the environment of an executor"))
                .bindSystem(name -> refused("system:" + name, "the properties of an executor's JVM"));
    }

    /** Has *parser* use these variables; throws an IllegalStateException if this Spark's parser has none. */
    public static ParserInterface in(ParserInterface parser) {
        if (!(parser instanceof SparkSqlParser)) {
            return parser;
        }
        try {
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
        return Option.apply(conf().getConfString(name, ""));
    }

    /** Whether *name* is a setting of the executors that no job sees. */
    static boolean isSecret(String name) {
        SparkConf executors = SparkEnv.get().conf();
        return executors.contains(name) && Pattern.compile(executors.get(REDACTED, SECRET)).matcher(name).find();
    }

    private static Option<String> refused(String name, String what) {
        throw new RefusedException("${" + name + "} stands for " + what + ", which no job reads: give the value with the job (--param)");
    }
}
