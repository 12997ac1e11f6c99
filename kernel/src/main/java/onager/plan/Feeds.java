package onager.plan;

import java.io.IOException;
import java.io.Serializable;
import java.lang.ref.SoftReference;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import onager.spark43.Files;
import onager.values.Seqs;
import onager.values.Serialization;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.ExecSubqueryExpression;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.StructType;

/**
 * Feeds of growing stages: finds what they read portion by portion, each where the one before it stopped. A portion is what the tasks of
 * a stage read, and says where to go on. Here are those of the files of a directory; for data sources, see `PagedSources`.
 */
public final class Feeds {
    private static final int MAX_FILES = 2_000;
    private static final long MAX_MS = 1_000;
    private static final int MAX_OPEN = 8;

    /** Listings that can go on here, by the name of the portion after which they do; any other is begun at its position. */
    private static final Map<String, SoftReference<Listing>> OPEN = new LinkedHashMap<>();

    private Feeds() {}

    /** What a feed asks for more. */
    interface Source extends Serializable {
        /** Writes what comes after the portion *before* to the file *target*; as `Feeds.next`. */
        String next(SparkSession session, byte[] before, String target) throws Exception;
    }

    /** A leaf without what its tasks read. */
    interface Growing extends Serializable {
        /** Returns the leaf over *portion*, whose first partition has the number *first*. */
        SparkPlan leaf(SparkSession session, byte[] portion, int first) throws Exception;
    }

    /** A directory, and how it is listed; *session* is that in which it is planned or listed. */
    record Place(SparkSession session, Path path, Path qualified, Map<String, String> options, boolean isFlat) {
        static Place of(SparkSession session, String root, Map<String, String> options, boolean isFlat) throws IOException {
            var path = new Path(root);
            var qualified = path.getFileSystem(Files.hadoop(session, options)).makeQualified(path);
            return new Place(session, path, qualified, options, isFlat);
        }

        Listing listing(String after) throws IOException {
            return new Listing(path, Files.hadoop(session, options), isFlat, after);
        }
    }

    /** What a feed finds files for: a scan without files, the filters that leave directories out, and how many it finds at a time. */
    private record Directory(Leaves.FilesOf scan, boolean isFlat, List<Expression> partitionFilters, int most) implements Source {
        Place place(SparkSession session) throws IOException {
            return Place.of(session, scan.files().roots().get(0), scan.files().options(), isFlat);
        }

        @Override
        public String next(SparkSession session, byte[] before, String target) throws Exception {
            return found(session, this, before, target);
        }
    }

    /** Files that were found together; *after*: where to go on. */
    private record Portion(String name, List<Leaves.Directory> directories, String after) implements Serializable {}

    /** A leaf whose files are those of a portion. */
    private record GrowingFiles(Leaves.FilesOf scan) implements Growing {
        @Override
        public SparkPlan leaf(SparkSession session, byte[] portion, int first) throws Exception {
            Portion found = Serialization.decode(portion);
            return scan.scan(session, scan.files().index(found.directories().stream().map(Leaves.Directory::listed).toList()));
        }
    }

    /**
     * Describes a scan of the first files of a directory in the files *leaf*, for the stage, *source*, for its feed, and *portion*.
     *
     * @return null if all of its files are to be listed now
     */
    static Leaves.Facts describe(FileSourceScanExec scan, String leaf, String source, String portion) throws Exception {
        var filters = Seqs.list(scan.partitionFilters());
        if (!(scan.relation().location() instanceof GrowingFileIndex index)
                || filters.stream().anyMatch(ExecSubqueryExpression::hasSubquery)) {
            return null;
        }
        var relation = scan.relation();
        var bare = Leaves.FilesOf.of(scan, List.of());
        var first = index.first(filters);
        Serialization.write(leaf, new GrowingFiles(bare));
        Serialization.write(source, new Directory(bare, index.place().isFlat(), new ArrayList<>(filters), Math.min(MAX_FILES, index.listed())));
        Serialization.write(portion, keep(index.takeRest(), first, index.after()));
        long bytes = (long) (index.sizeInBytes() * Queries.columnShare(relation, scan.requiredSchema().defaultSize()));
        return Leaves.Facts.ofFiles(bytes, Files.tasks(relation, Seqs.seq(first)), index.place().path().toString(), index.listed(),
                relation.fileFormat(), true);
    }

    /**
     * Finds what comes after the portion *before*, for the feed of *source*, and writes it to the file *target*; *session* has the
     * conf of the stage that is fed.
     *
     * @return "partitions files ended", separated by tabs; of a data source, each partition counts as a file
     */
    public static String next(SparkSession session, byte[] source, byte[] before, String target) throws Exception {
        return Leaves.within(session, () -> Serialization.<Source>decode(source).next(session, before, target));
    }

    /** Returns the directories that the feed of *source* lists, a line each. */
    public static String roots(byte[] source) throws Exception {
        return Serialization.<Source>decode(source) instanceof Directory directory ? String.join("\n", directory.scan().files().roots()) : "";
    }

    private static String found(SparkSession session, Directory feed, byte[] before, String target) throws Exception {
        Portion last = Serialization.decode(before);
        Place place = feed.place(session);
        Listing listing = open(last.name());
        listing = listing == null ? place.listing(last.after()) : listing;
        var found = new ArrayList<Listing.Found>();
        long until = System.nanoTime() + MAX_MS * 1_000_000L;
        boolean hasEnded = false;
        while (!hasEnded && found.size() < feed.most() && System.nanoTime() < until) {
            var file = listing.next();
            hasEnded = file == null;
            if (!hasEnded) {
                found.add(file);
            }
        }
        StructType schema = feed.scan().files().partitionSchema();
        var directories = Partitioned.directories(place, schema, found, feed.partitionFilters());
        String after = found.isEmpty() ? last.after() : found.get(found.size() - 1).position();
        Serialization.write(target, keep(hasEnded ? null : listing, directories, after));
        int tasks = directories.isEmpty() ? 0 : Files.tasks(feed.scan().scan(session, feed.scan().files().index(directories)).relation(), Seqs.seq(directories));
        return tasks + "\t" + found.size() + "\t" + (hasEnded ? "1" : "0");
    }

    /** Returns the leaf that *description* describes, over *portion*, whose first partition is *first*. */
    public static SparkPlan rebuild(byte[] description, byte[] portion, int first, SparkSession session) throws Exception {
        Growing growing = Serialization.decode(description);
        return Leaves.within(session, () -> new GrownScanExec(growing.leaf(session, portion, first), first));
    }

    private static Portion keep(Listing rest, List<PartitionDirectory> directories, String after) {
        String name = UUID.randomUUID().toString();
        synchronized (OPEN) {
            if (rest != null) {
                OPEN.put(name, new SoftReference<>(rest));
            }
            while (OPEN.size() > MAX_OPEN) {
                OPEN.remove(OPEN.keySet().iterator().next());
            }
        }
        return new Portion(name, new ArrayList<>(directories.stream().map(Leaves.Directory::of).toList()), after);
    }

    private static Listing open(String name) {
        synchronized (OPEN) {
            var kept = OPEN.remove(name);
            return kept == null ? null : kept.get();
        }
    }
}
