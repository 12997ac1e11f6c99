package onager.plan;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import onager.values.Seqs;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.StructType;

/** The files of a relation as they were listed, and how they are read: what another process makes the relation of. */
record StoredFiles(StructType partitionSchema, StructType dataSchema, String format, Map<String, String> options, List<String> roots,
        List<Leaves.Directory> directories) implements Serializable {
    static StoredFiles of(HadoopFsRelation relation, List<PartitionDirectory> listed) {
        var options = new HashMap<>(scala.jdk.javaapi.CollectionConverters.asJava(relation.options()));
        return new StoredFiles(relation.partitionSchema(), relation.dataSchema(), relation.fileFormat().getClass().getName(), options,
                new ArrayList<>(roots(relation.location()).toList()), new ArrayList<>(listed.stream().map(Leaves.Directory::of).toList()));
    }

    /** Return where the files of *index* lie, as URIs. */
    static Stream<String> roots(FileIndex index) {
        return Seqs.list(index.rootPaths()).stream().map(Path::toString);
    }

    FixedFileIndex index() {
        return index(directories.stream().map(Leaves.Directory::listed).toList());
    }

    /** Return the index of *listed* instead of the directories that were stored. */
    FixedFileIndex index(List<PartitionDirectory> listed) {
        return new FixedFileIndex(Seqs.seq(roots.stream().map(Path::new).toList()), listed, partitionSchema);
    }

    FileFormat newFormat() throws ReflectiveOperationException {
        return (FileFormat) Class.forName(format, true, Thread.currentThread().getContextClassLoader()).getConstructor().newInstance();
    }
}
