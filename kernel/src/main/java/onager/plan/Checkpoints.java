package onager.plan;

import java.io.File;
import java.nio.file.NotDirectoryException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import onager.spark43.Adaptive;
import onager.spark43.Expressions;
import onager.spark43.Files;
import onager.spark43.Nodes;
import onager.values.Seqs;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.InternalRow$;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.DataSourceUtils;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** Reads checkpoints, which no query can read by their paths. */
public final class Checkpoints {
    private Checkpoints() {}

    /** Throws Spark's error for a column of *schema*, as JSON, of a type that Parquet does not have. */
    public static void check(SparkSession session, String schema) {
        DataSourceUtils.verifySchema(Files.format(session, "parquet"), (StructType) DataType.fromJson(schema), false);
    }

    /**
     * Returns the rows of the Parquet files in *folder*, with the columns of *schema*, as JSON. In the files, columns are called by their
     * places, because their names may repeat.
     */
    public static LogicalPlan read(SparkSession session, String folder, String schema) throws NotDirectoryException {
        File[] parts = new File(folder).listFiles((in, name) -> !name.startsWith("_") && !name.startsWith("."));
        if (parts == null) {
            throw new NotDirectoryException(folder);
        }
        var statuses = Stream.of(parts).sorted()
                .map(part -> new FileStatus(part.length(), false, 1, 0, part.lastModified(), new Path(part.toURI())))
                .toArray(FileStatus[]::new);
        var files = new FixedFileIndex(Seqs.seq(), List.of(PartitionDirectory.apply(InternalRow$.MODULE$.empty(), statuses)), new StructType());
        var stored = new ArrayList<AttributeReference>();
        var named = new ArrayList<NamedExpression>();
        var fields = new ArrayList<StructField>();
        for (StructField field : ((StructType) DataType.fromJson(schema)).fields()) {
            fields.add(new StructField(String.valueOf(fields.size()), field.dataType(), field.nullable(), Metadata.empty()));
            stored.add(Expressions.attribute(fields.get(fields.size() - 1)));
            named.add(Expressions.renamed(stored.get(stored.size() - 1), Expressions.attribute(field)));
        }
        var columns = new StructType(fields.toArray(StructField[]::new));
        LogicalPlan relation = Adaptive.relation(files, columns, Files.format(session, "parquet"), Seqs.map(Map.of()), session, stored);
        return Nodes.project(Seqs.seq(named), relation);
    }
}
