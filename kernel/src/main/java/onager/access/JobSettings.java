package onager.access;

import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.spark.sql.internal.SQLConf$;

/**
 * Which settings and options jobs may give. All of them reach Hadoop's settings, too, so that a wrong one would load a class, or put another
 * file system in place of one that is guarded.
 */
public final class JobSettings {
    private static final String OPERATORS = "it is a setting of executors: onager executor --spark-conf ";
    private static final Pattern ENVIRONMENT = Pattern.compile("\\$\\{(env|system):");
    private static final Pattern OF_CLASSES = Pattern.compile("(?i).*(class|classes|provider|providers|impl|factory|codecs|serializations|loader)");
    private static final Set<String> OF_SPARK = Set.of("spark.sql.execution.pyspark.python", "spark.sql.streaming.checkpointlocation");
    private static final Set<String> HARMLESS = Set.of("spark.sql.defaultcolumn.allowedproviders", "spark.sql.orc.impl");
    /** Of tables that Hive has made. */
    private static final String SERIALIZATION = "serialization.format";
    private static final List<String> OF_FORMATS = List.of("parquet.", "orc.", "avro.", "mapreduce.", "textinputformat.");

    private JobSettings() {}

    /** Return why no job may set *key* to *value*; null: it may, if Spark lets it. */
    public static String refusal(String key, String value) {
        if (value != null && ENVIRONMENT.matcher(value).find()) {
            return "its value would be taken from the environment of an executor";
        }
        String name = key.toLowerCase(Locale.ROOT);
        if (name.startsWith("spark.hadoop.")) {
            return ofHadoop(key.substring("spark.hadoop.".length()));
        }
        if (!name.startsWith("spark.")) {
            String why = name.startsWith("onager.") ? null : ofHadoop(key);
            return why == null ? null : why + "; a variable of a script is a name without a dot";
        }
        boolean isOperators = name.startsWith("spark.sql.catalog.") || OF_SPARK.contains(name)
                || (OF_CLASSES.matcher(name).matches() && !HARMLESS.contains(name) && SQLConf$.MODULE$.containsConfigKey(key));
        return isOperators ? OPERATORS + key + "=…" : null;
    }

    /** Return why no job may give *key* as an option of files, or as a setting of Hadoop; null: it may. */
    static String ofHadoop(String key) {
        String name = key.toLowerCase(Locale.ROOT);
        if (!name.contains(".") || name.equals(SERIALIZATION)) {
            return null; // an option of a format, or a variable of a script
        }
        boolean namesClass = Arrays.stream(name.split("[.#]")).anyMatch(part -> OF_CLASSES.matcher(part).matches());
        if (!namesClass && OF_FORMATS.stream().anyMatch(name::startsWith)) {
            return null;
        }
        String[] parts = name.split("\\.", 3);
        boolean isOfFiles = parts.length == 3 && parts[0].equals("fs") && !parts[1].equals("file");
        if (isOfFiles && !namesClass && Access.get().allows(parts[1] + ":")) {
            return null;
        }
        return OPERATORS + "spark.hadoop." + key + "=…"
                + (isOfFiles && !namesClass ? ", or " + Access.flag(parts[1] + ":") : "");
    }

    /** Return why nobody may give the option *key* for files; null: one may. */
    public static String ofOption(String key) {
        return ofHadoop(key.toLowerCase(Locale.ROOT).startsWith("option.") ? key.substring("option.".length()) : key);
    }
}
