package onager.plan;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import onager.failure.RefusedException;
import onager.spark43.Files;
import onager.values.Seqs;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.PartitionSpec;
import org.apache.spark.sql.types.StructType;

/** Files as Spark sees them: by the directories that hold them, which may be partitions of a table. */
final class Partitioned {
    private Partitioned() {}

    /** Returns the directories of *files*, in order. */
    private static Map<Path, List<FileStatus>> byDirectory(List<Listing.Found> files) {
        var found = new LinkedHashMap<Path, List<FileStatus>>();
        files.forEach(each -> found.computeIfAbsent(each.file().getPath().getParent(), any -> new ArrayList<>()).add(each.file()));
        return found;
    }

    /** Returns the partition columns of *files*, with the types of *given*, null: as their values look; null: they are nested otherwise. */
    static StructType schema(Feeds.Place place, List<Listing.Found> files, StructType given) {
        var directories = byDirectory(files);
        if (directories.keySet().equals(java.util.Set.of(place.qualified()))) {
            return new StructType();
        }
        var columns = spec(place, directories, given).partitionColumns();
        return columns.isEmpty() || directories.containsKey(place.qualified()) ? null : columns;
    }

    private static PartitionSpec spec(Feeds.Place place, Map<Path, List<FileStatus>> directories, StructType types) {
        return Files.partitions(place.session(), place.qualified(), List.copyOf(directories.keySet()), types);
    }

    /** Returns the directories of *files*, without those that *filters* on the partition columns *schema* leave out. */
    static List<PartitionDirectory> directories(Feeds.Place place, StructType schema, List<Listing.Found> files, List<Expression> filters) {
        var found = byDirectory(files);
        var values = schema.isEmpty() || found.isEmpty() ? null : values(place, found, schema);
        var predicates = filters.stream().map(each -> PrunedScanExec.predicate(each, schema)).filter(Objects::nonNull).toList();
        var kept = new ArrayList<PartitionDirectory>();
        found.forEach((path, some) -> {
            InternalRow row = values == null ? InternalRow.empty() : values.get(path);
            if (predicates.stream().allMatch(each -> each.eval(row))) {
                kept.add(PartitionDirectory.apply(row, some.toArray(FileStatus[]::new)));
            }
        });
        return kept;
    }

    private static Map<Path, InternalRow> values(Feeds.Place place, Map<Path, List<FileStatus>> directories, StructType schema) {
        PartitionSpec spec;
        try {
            spec = spec(place, directories, schema);
        } catch (RuntimeException | AssertionError e) {
            throw refused(place, schema, e.getMessage());
        }
        if (!Arrays.equals(spec.partitionColumns().fieldNames(), schema.fieldNames())) {
            throw refused(place, schema, "there are partitions by " + String.join(", ", spec.partitionColumns().fieldNames()));
        }
        var found = new HashMap<Path, InternalRow>();
        Seqs.list(spec.partitions()).forEach(each -> found.put(each.path(), each.values()));
        return found;
    }

    private static RefusedException refused(Feeds.Place place, StructType schema, String why) {
        return new RefusedException("the partitions of " + place.path() + " are not all by " + schema.toDDL()
                + ", as those are that were listed when the query was planned (" + why
                + "): give the schema, or list all of them first (onager.feed.fromFiles=0)");
    }
}
