package onager.plan;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import onager.spark43.Files;
import onager.values.Seqs;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.UnresolvedDataSource;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Resolves a read of a directory with very many files over a `GrowingFileIndex`, before Spark would list all of it. Whatever it does not
 * recognise is left to Spark: several paths, patterns, options about which files to read, a schema that depends on all files.
 */
public final class GrowingReads extends Rule<LogicalPlan> {
    private static final Set<String> FORMATS = Set.of("parquet", "orc", "csv", "json", "text");
    private static final Set<String> SCHEMA_OF_ONE_FILE = Set.of("parquet", "orc", "text");
    private static final Set<String> CHOOSE_FILES = Set.of("recursivefilelookup", "pathglobfilter", "modifiedbefore", "modifiedafter",
            "basepath", "mergeschema", "ignoreinvalidpartitionpaths");
    private static final Map<SparkSession, Integer> FROM_FILES = Collections.synchronizedMap(new WeakHashMap<>());

    private final SparkSession session;

    private GrowingReads(SparkSession session) {
        this.session = session;
    }

    static void inject(SparkSessionExtensions extensions) {
        extensions.injectHintResolutionRule(session -> new GrowingReads((SparkSession) session));
    }

    /** Let reads in *session* be growing ones where there are *fromFiles* files or more. */
    public static void enable(SparkSession session, int fromFiles) {
        FROM_FILES.put(session, fromFiles);
    }

    @Override
    public LogicalPlan apply(LogicalPlan plan) {
        Integer fromFiles = FROM_FILES.isEmpty() ? null : FROM_FILES.get(session);
        return fromFiles == null ? plan
                : plan.resolveOperatorsUp(Seqs.change(UnresolvedDataSource.class, source -> {
                    try {
                        LogicalPlan growing = growing(source, fromFiles);
                        return growing == null ? source : growing;
                    } catch (IOException e) {
                        throw new UncheckedIOException(e);
                    }
                }));
    }

    /** Returns the relation of a read of *fromFiles* files or more, else null. */
    private LogicalPlan growing(UnresolvedDataSource source, int fromFiles) throws IOException {
        var options = new HashMap<>(CollectionConverters.asJava(source.options().originalMap()));
        Path path = path(source, options);
        StructType given = source.userSpecifiedSchema().getOrElse(() -> null);
        boolean isKnown = given != null || (SCHEMA_OF_ONE_FILE.contains(source.format()) && !Files.mergesSchemas(session));
        FileFormat format = path == null || !isKnown ? null : Files.format(session, source.format());
        if (format == null) {
            return null;
        }
        Configuration conf = Files.hadoop(session, options);
        var streamed = new Path(path, "_spark_metadata");
        if (!Listing.isDirectory(path, conf) || Listing.isDirectory(streamed, conf)) {
            return null;
        }
        var nested = new Listing(path, conf, false, null);
        var first = new ArrayList<Listing.Found>();
        while (first.size() < fromFiles) {
            var found = nested.next();
            if (found == null) {
                return null; // so few that Spark may as well list them
            }
            first.add(found);
        }
        var place = new Feeds.Place(session, path, nested.root(), options, false);
        StructType partitions = Partitioned.schema(place, first, given);
        return partitions == null ? null : relation(place, first, nested, partitions, given, format);
    }

    private LogicalPlan relation(Feeds.Place nested, List<Listing.Found> first, Listing rest, StructType partitions, StructType given,
            FileFormat format) throws IOException {
        boolean isFlat = partitions.isEmpty();
        var place = new Feeds.Place(session, nested.path(), nested.qualified(), nested.options(), isFlat);
        StructType data = given != null ? Files.without(session, given, partitions)
                : Files.inferred(session, format, place.options(), first.stream().map(Listing.Found::file).toList());
        if (data == null || Files.without(session, data, partitions).size() != data.size()) {
            return null; // Spark knows what to do with columns that are in the files, too
        }
        // In a flat directory, what lies below it is not read: the rest is listed otherwise than the beginning.
        Listing after = isFlat ? place.listing(first.get(first.size() - 1).position()) : rest;
        return Files.relation(session, new GrowingFileIndex(place, partitions, first, after), data, format, place.options());
    }

    /** Returns the only path of *source*, or null. */
    private static Path path(UnresolvedDataSource source, Map<String, String> options) {
        var paths = new ArrayList<>(Seqs.list(source.paths()));
        boolean isPlain = !source.isStreaming() && FORMATS.contains(source.format());
        for (var option : options.entrySet()) {
            String name = option.getKey().toLowerCase(java.util.Locale.ROOT);
            isPlain = isPlain && !CHOOSE_FILES.contains(name) && !name.equals("paths");
            if (name.equals("path")) {
                paths.add(option.getValue());
            }
        }
        if (!isPlain || paths.size() != 1 || paths.get(0).matches(".*[{}\\[\\]*?\\\\].*")) {
            return null;
        }
        return new Path(paths.get(0));
    }
}
