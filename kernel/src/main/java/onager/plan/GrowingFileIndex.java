package onager.plan;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import onager.values.Seqs;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/**
 * The first files of a directory with very many, and the rest once somebody asks for it. A stage that can grow reads the first ones, and
 * its feed finds the others (`Feeds`). Whatever else reads it, such as plain Spark, gets all files, and waits until they are listed.
 */
final class GrowingFileIndex implements FileIndex {
    /** How much larger a directory counts than the part of it that is listed. */
    static final int LARGER = 10;
    /** The least that it counts: more than is broadcast, or read in one task. */
    static final long LEAST_BYTES = 1L << 30;

    private final Feeds.Place place;
    private final StructType partitionSchema;
    private final List<Listing.Found> first;
    private final long bytes;
    private Listing rest;
    private List<Listing.Found> all;

    /** *rest* goes on after the *first* files. */
    GrowingFileIndex(Feeds.Place place, StructType partitionSchema, List<Listing.Found> first, Listing rest) {
        this.place = place;
        this.partitionSchema = partitionSchema;
        this.first = first;
        this.bytes = Math.max(LARGER * first.stream().mapToLong(each -> each.file().getLen()).sum(), LEAST_BYTES);
        this.rest = rest;
    }

    /** The same in a plan that is made again, without any file: it reads what the growing stage gives. *bytes*: how large it counts. */
    GrowingFileIndex(Feeds.Place place, StructType partitionSchema, long bytes) {
        this.place = place;
        this.partitionSchema = partitionSchema;
        this.first = List.of();
        this.bytes = bytes;
    }

    Feeds.Place place() {
        return place;
    }

    /** Returns the listing of the rest, to one caller; null to any other, such as the feed of a second scan of the same files. */
    synchronized Listing takeRest() {
        Listing taken = rest;
        rest = null;
        return taken;
    }

    /** Returns how many files are listed already. */
    int listed() {
        return first.size();
    }

    /** Whether somebody asked for all files. */
    synchronized boolean isListed() {
        return all != null;
    }

    /** Returns the position after which the feed goes on. */
    String after() {
        return first.isEmpty() ? null : first.get(first.size() - 1).position();
    }

    /** Returns the first files, without the directories that *partitionFilters* leave out. */
    List<PartitionDirectory> first(List<Expression> partitionFilters) {
        return Partitioned.directories(place, partitionSchema, first, partitionFilters);
    }

    private synchronized List<Listing.Found> all() {
        if (all == null) {
            var found = new ArrayList<>(first);
            try {
                var others = place.listing(after());
                for (var file = others.next(); file != null; file = others.next()) {
                    found.add(file);
                }
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
            all = found;
        }
        return all;
    }

    @Override
    public Seq<Path> rootPaths() {
        return Seqs.seq(place.qualified());
    }

    @Override
    public Seq<PartitionDirectory> listFiles(Seq<Expression> partitionFilters, Seq<Expression> dataFilters) {
        return Seqs.seq(Partitioned.directories(place, partitionSchema, all(), Seqs.list(partitionFilters)));
    }

    @Override
    public String[] inputFiles() {
        Stream<FileStatusWithMetadata> files = Seqs.list(listFiles(Seqs.seq(), Seqs.seq())).stream()
                .flatMap(directory -> Seqs.list(directory.files()).stream());
        return files.map(file -> file.getPath().toUri().toString()).toArray(String[]::new);
    }

    @Override
    public void refresh() {}

    @Override
    public long sizeInBytes() {
        return bytes;
    }

    @Override
    public StructType partitionSchema() {
        return partitionSchema;
    }
}
