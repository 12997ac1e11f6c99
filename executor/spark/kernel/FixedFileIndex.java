package onager.kernel;

import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/** A listing that was made once, when the query was planned: the same files for every task, and no listing again. */
public final class FixedFileIndex implements FileIndex {
    private final List roots;
    private final List directories;
    private final StructType partitionSchema;

    /**
     * @param roots the Paths that the query named
     * @param directories the PartitionDirectories that are left after partition pruning
     */
    public FixedFileIndex(List roots, List directories, StructType partitionSchema) {
        this.roots = roots;
        this.directories = directories;
        this.partitionSchema = partitionSchema;
    }

    public Seq rootPaths() {
        return PlanTools.seq(roots);
    }

    public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
        return PlanTools.seq(directories);
    }

    public String[] inputFiles() {
        ArrayList files = new ArrayList();
        for (int i = 0; i < directories.size(); i++) {
            Iterator statuses = ((PartitionDirectory) directories.get(i)).files().iterator();
            while (statuses.hasNext()) {
                Path path = ((FileStatusWithMetadata) statuses.next()).getPath();
                files.add(path.toUri().toString());
            }
        }
        return (String[]) files.toArray(new String[0]);
    }

    public void refresh() {}

    public long sizeInBytes() {
        long total = 0;
        for (int i = 0; i < directories.size(); i++) {
            Iterator statuses = ((PartitionDirectory) directories.get(i)).files().iterator();
            while (statuses.hasNext()) {
                total += ((FileStatusWithMetadata) statuses.next()).getLen();
            }
        }
        return total;
    }

    public StructType partitionSchema() {
        return partitionSchema;
    }
}
