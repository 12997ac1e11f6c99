package onager.plan;

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

/** A file listing that was made when the query was planned: all tasks see the same files, and nothing is listed again. */
public final class FixedFileIndex implements FileIndex {
    private final Seq<Path> roots;
    private final List<PartitionDirectory> directories;
    private final StructType partitionSchema;

    /** *roots*: the paths in the query; *directories*: those left after partition pruning. */
    public FixedFileIndex(Seq<Path> roots, List<PartitionDirectory> directories, StructType partitionSchema) {
        this.roots = roots;
        this.directories = directories;
        this.partitionSchema = partitionSchema;
    }

    private Stream<FileStatusWithMetadata> files() {
        return directories.stream().flatMap(directory -> Seqs.list(directory.files()).stream());
    }

    @Override
    public Seq<Path> rootPaths() {
        return roots;
    }

    @Override
    public Seq<PartitionDirectory> listFiles(Seq<Expression> partitionFilters, Seq<Expression> dataFilters) {
        if (partitionFilters.isEmpty()) {
            return Seqs.seq(directories);
        }
        var predicates = Seqs.list(partitionFilters).stream().map(each -> PrunedScanExec.predicate(each, partitionSchema)).toList();
        return Seqs.seq(directories.stream()
                .filter(directory -> predicates.stream().allMatch(each -> each == null || each.eval(directory.values())))
                .toList());
    }

    @Override
    public String[] inputFiles() {
        return files().map(file -> file.getPath().toUri().toString()).toArray(String[]::new);
    }

    @Override
    public void refresh() {}

    @Override
    public long sizeInBytes() {
        return files().mapToLong(FileStatusWithMetadata::getLen).sum();
    }

    @Override
    public StructType partitionSchema() {
        return partitionSchema;
    }
}
