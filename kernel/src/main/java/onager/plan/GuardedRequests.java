package onager.plan;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import onager.access.Access;
import onager.access.JobSettings;
import onager.failure.RefusedException;
import onager.spark43.Formats;
import onager.spark43.Variables;
import onager.values.Seqs;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.catalog.CatalogStorageFormat;
import org.apache.spark.sql.catalyst.catalog.FunctionResource;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OptionList;
import org.apache.spark.sql.catalyst.plans.logical.ScriptTransformation;
import org.apache.spark.sql.catalyst.plans.logical.TableSpecBase;
import org.apache.spark.sql.catalyst.plans.logical.UnresolvedDataSource;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.command.AddArchivesCommand;
import org.apache.spark.sql.execution.command.AddFilesCommand;
import org.apache.spark.sql.execution.command.AddJarsCommand;
import org.apache.spark.sql.execution.command.CreateFunctionCommand;
import org.apache.spark.sql.execution.command.SetCommand;
import scala.Option;
import scala.Product;

/**
 * Refuses what a query or a statement asks for and jobs may not use, before Spark looks at any file or loads any class for it: data sources,
 * options and settings, paths, programs, jars.
 */
final class GuardedRequests extends Rule<LogicalPlan> {
    private static final String TRANSFORM = "transform";
    private static final Set<String> FORMATS = Set.of("provider", "format");
    private static final String PATH = "path";
    private static final String LOCATION = "location";
    /** Of tables, and of no file. */
    private static final String PROPERTIES = "properties";
    /** Begins the names of properties in which Spark keeps the settings that a view is read with. */
    private static final String OF_VIEWS = "view.sqlConfig.";

    private static final Set<Class<?>> ADDING = Set.of(AddArchivesCommand.class, AddFilesCommand.class, AddJarsCommand.class);

    private final SparkSession session;

    private GuardedRequests(SparkSession session) {
        this.session = session;
    }

    static void inject(SparkSessionExtensions extensions) {
        extensions.injectHintResolutionRule(session -> new GuardedRequests((SparkSession) session));
    }

    @Override
    public LogicalPlan apply(LogicalPlan plan) {
        check(plan);
        return Variables.resolved(session, plan);
    }

    private void check(LogicalPlan plan) {
        if (plan.analyzed()) {
            return;
        }
        if (plan instanceof ScriptTransformation && !Access.get().allows(TRANSFORM)) {
            throw new RefusedException("TRANSFORM runs a program with the rights of the executor, and is refused: use a UDF, or "
                    + Access.flag(TRANSFORM));
        } else if (ADDING.contains(plan.getClass())) {
            throw new RefusedException("what ADD JAR, ADD FILE or ADD ARCHIVE names would be loaded into the Spark that all jobs of the executor share, "
                    + "and is refused: give it to all executors (--spark-conf spark.driver.extraClassPath=…)");
        } else if (plan instanceof SetCommand set) {
            checkSetting(set);
        } else if (plan instanceof CreateFunctionCommand function && function.resources().nonEmpty()) {
            throw refused(function.resources().head());
        } else if (plan instanceof CreateFunctionCommand function && isOfHive(function.className()) && !Guard.isReflecting()) {
            throw new RefusedException(function.className() + " is a class of Hive, some of which call any Java method, and is refused");
        } else if (plan instanceof UnresolvedDataSource source) {
            checkPaths(Seqs.list(source.paths()));
        } else if (plan instanceof UnresolvedRelation relation && relation.multipartIdentifier().size() == 2) {
            String path = relation.multipartIdentifier().last();
            checkPaths(path.contains("/") ? List.of(path) : List.of());
        }
        checkFields(plan);
        Seqs.list(plan.children()).forEach(this::check);
    }

    private static boolean isOfHive(String className) {
        return className.startsWith("org.apache.hadoop.");
    }

    private static RefusedException refused(FunctionResource resource) {
        return new RefusedException(resource.uri() + " would be loaded into the Spark that all jobs of the executor share, and is refused: "
                + "give the jar to all executors (--spark-conf spark.driver.extraClassPath=…), and leave out USING");
    }

    private void checkSetting(SetCommand set) {
        if (set.kv().isEmpty() || set.kv().get()._1().startsWith("-")) {
            Variables.checkRedacted(session.sessionState().conf());
            return;
        }
        String key = set.kv().get()._1();
        Option<String> value = set.kv().get()._2();
        if (value.isDefined()) {
            checkSetting(key, value.get());
        } else if (Variables.isSecret(key)) {
            throw new RefusedException(key + " is a secret of the executors, which no job reads");
        }
    }

    private static void checkSetting(String key, String value) {
        String why = Variables.isOne(key) ? JobSettings.ofValue(value) : JobSettings.refusal(Variables.name(key), value);
        if (why != null) {
            throw new RefusedException("a job cannot set " + key + ": " + why);
        }
    }

    /** Look at what *node* says about data sources: their names and options, wherever Spark's plans keep them. */
    private void checkFields(Product node) {
        String format = null;
        var options = new ArrayList<Map.Entry<String, String>>();
        for (int i = 0; i < node.productArity(); i++) {
            Object value = node.productElement(i) instanceof Option<?> given ? given.getOrElse(() -> null) : node.productElement(i);
            String name = node.productElementName(i);
            if (FORMATS.contains(name) && (value == null || value instanceof String)) {
                format = value == null ? session.sessionState().conf().defaultDataSourceName() : (String) value;
            } else if (value instanceof String text && name.equals(LOCATION)) {
                checkPaths(List.of(text));
            } else if (value instanceof scala.collection.Map<?, ?> map) {
                boolean isOfTable = name.equals(PROPERTIES) && !(node instanceof CatalogStorageFormat);
                for (var pair : Seqs.each(map.iterator())) {
                    add(options, pair._1(), pair._2(), isOfTable);
                    checkProperty(isOfTable ? pair._1() : null, pair._2());
                }
            } else if (value instanceof Map<?, ?> map) {
                map.forEach((key, each) -> add(options, key, each, false));
            } else if (value instanceof OptionList list) {
                Seqs.list(list.options()).forEach(pair -> add(options, pair._1(), pair._2().toString(), false));
            } else if (value instanceof TableSpecBase || value instanceof CatalogStorageFormat) {
                checkFields((Product) value);
            }
        }
        if (format != null && checkFormat(session, format)) {
            return;
        }
        for (var option : options) {
            Guard.checkOption(option.getKey(), option.getValue());
            if (option.getKey().equalsIgnoreCase(PATH)) {
                checkPaths(List.of(option.getValue()));
            }
        }
    }

    /** Throws if the property *key* of a database names a place that is not for jobs, or one of a view a setting. */
    private void checkProperty(Object key, Object value) {
        if (key instanceof String name && value instanceof String text) {
            if (name.equalsIgnoreCase(LOCATION)) {
                checkPaths(List.of(text));
            } else if (name.regionMatches(true, 0, OF_VIEWS, 0, OF_VIEWS.length())) {
                checkSetting(name.substring(OF_VIEWS.length()), text);
            }
        }
    }

    private static void add(List<Map.Entry<String, String>> options, Object key, Object value, boolean isOfTable) {
        if (key instanceof String name && value instanceof String text && !(isOfTable && !name.startsWith("option."))) {
            options.add(Map.entry(name, text));
        }
    }

    /** Throws if one of *paths* is not for jobs; what is no path is left to Spark. */
    private void checkPaths(List<String> paths) {
        var named = new ArrayList<Path>();
        for (String path : paths) {
            try {
                named.add(new Path(path));
            } catch (IllegalArgumentException e) {
                // Spark says what is wrong with it
            }
        }
        Guard.checkRead(session, named.stream());
    }

    /** Throws if *name* is a data source that jobs may not use; returns whether its options are its own, and none of files. */
    static boolean checkFormat(SparkSession session, String name) {
        Access access = Access.get();
        if (Access.FORMATS.stream().anyMatch(name::equalsIgnoreCase)) {
            return false;
        }
        Formats.Kind kind = Formats.kind(session, name);
        if (kind == Formats.Kind.OTHER || kind == Formats.Kind.OTHER_FILES) {
            if (access.allows(name)) {
                return kind == Formats.Kind.OTHER;
            }
            throw new RefusedException("the data source " + name + " is not among those that jobs may use (" + String.join(", ", Access.FORMATS)
                    + ", and those in Python); " + Access.flag(name));
        }
        return kind == Formats.Kind.PYTHON;
    }
}
