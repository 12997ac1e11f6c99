package onager.spark43;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.TreeSet;
import java.util.stream.Stream;
import onager.failure.RefusedException;
import onager.values.Seqs;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.Job;
import org.apache.spark.SparkContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.PartitionedFileUtil$;
import org.apache.spark.sql.execution.datasources.DataSource$;
import org.apache.spark.sql.execution.datasources.DataSourceUtils;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FilePartition$;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation$;
import org.apache.spark.sql.execution.datasources.OutputWriterFactory;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.PartitionSpec;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.execution.datasources.PartitioningUtils$;
import org.apache.spark.sql.execution.datasources.csv.CSVFileFormat;
import org.apache.spark.sql.execution.datasources.json.JsonFileFormat;
import org.apache.spark.sql.execution.datasources.orc.OrcFileFormat;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.datasources.text.TextFileFormat;
import org.apache.spark.sql.execution.datasources.v2.DataSourceRDD;
import org.apache.spark.sql.execution.datasources.v2.FileDataSourceV2;
import org.apache.spark.sql.execution.datasources.xml.XmlFileFormat;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;
import scala.collection.immutable.Set$;

/** Reads and writes files and data sources as Spark's scans and sinks do. */
public final class Files {
    private Files() {}

    /** Return a scan of *files*, to which partition filters were already applied. */
    public static FileSourceScanExec scan(FileIndex files, StructType dataSchema, FileFormat format, Map<String, String> options,
            SparkSession session, Seq<Attribute> output, StructType required, Seq<Expression> dataFilters) {
        var relation = new HadoopFsRelation(files, files.partitionSchema(), dataSchema, Option.empty(), format, options, session);
        return new FileSourceScanExec(relation, Option.empty(), output, required, Seqs.seq(), Option.empty(), Option.empty(), dataFilters,
                Option.empty(), true, false);
    }

    /** Return the number of partitions of a scan of *directories*, without making its reader. */
    public static int tasks(HadoopFsRelation relation, Seq<PartitionDirectory> directories) {
        var session = relation.sparkSession();
        long most = FilePartition$.MODULE$.maxSplitBytes(session, directories);
        var pieces = new ArrayList<PartitionedFile>();
        for (var directory : Seqs.list(directories)) {
            for (var file : Seqs.list(directory.files())) {
                boolean isSplitable = relation.fileFormat().isSplitable(session, relation.options(), file.getPath());
                pieces.addAll(Seqs.list(PartitionedFileUtil$.MODULE$.splitFiles(file, file.getPath(), isSplitable, most, directory.values())));
            }
        }
        pieces.sort(Comparator.comparingLong(PartitionedFile::length).reversed());
        return FilePartition$.MODULE$.getFilePartitions(session, Seqs.seq(pieces), most).size();
    }

    /** Return an RDD of the rows or columnar batches of a data source's partitions. */
    public static RDD<InternalRow> dataSource(SparkContext sc, Seq<Option<InputPartition>> partitions, PartitionReaderFactory readers,
            boolean isColumnar) {
        return new DataSourceRDD(sc, partitions, readers, isColumnar, Seqs.map(java.util.Map.of()));
    }

    /** Return *given* as a map with case-insensitive names. */
    public static Map<String, String> options(java.util.Map<String, String> given) {
        return CaseInsensitiveMap$.MODULE$.apply(Seqs.map(given));
    }

    /** Return the factory of writers for a sink's files. */
    public static OutputWriterFactory writer(String format, SparkSession session, Job job, Map<String, String> options, StructType schema) {
        FileFormat made = switch (format) {
            case "parquet" -> new ParquetFileFormat();
            case "csv" -> new CSVFileFormat();
            case "json" -> new JsonFileFormat();
            case "orc" -> new OrcFileFormat();
            case "text" -> new TextFileFormat();
            case "xml" -> new XmlFileFormat();
            default -> throw new RefusedException("a sink is written as parquet, csv, json, orc, text or xml, not as " + format);
        };
        DataSourceUtils.verifySchema(made, schema, false);
        return made.prepareWrite(session, job, options, schema);
    }

    /** Return Hadoop's settings for a read with *options* in *session*. */
    public static Configuration hadoop(SparkSession session, java.util.Map<String, String> options) {
        return session.sessionState().newHadoopConfWithOptions(Seqs.map(options));
    }

    /** Return the format *name* of files if Spark's first interface reads it, else null. */
    public static FileFormat format(SparkSession session, String name) {
        var conf = session.sessionState().conf();
        try {
            boolean isSecond = DataSource$.MODULE$.lookupDataSourceV2(name, conf).isDefined();
            Object made = isSecond ? null : DataSource$.MODULE$.lookupDataSource(name, conf).getConstructor().newInstance();
            made = made instanceof FileDataSourceV2 files ? files.fallbackFileFormat().getConstructor().newInstance() : made;
            return made instanceof FileFormat format ? format : null;
        } catch (ReflectiveOperationException e) {
            return null;
        }
    }

    /** Whether a schema is merged from those of all files. */
    public static boolean mergesSchemas(SparkSession session) {
        var conf = session.sessionState().conf();
        return conf.isParquetSchemaMergingEnabled() || conf.isOrcSchemaMergingEnabled();
    }

    /** Return the schema that *format* finds in *files*, or null. */
    public static StructType inferred(SparkSession session, FileFormat format, java.util.Map<String, String> options,
            List<FileStatus> files) {
        return format.inferSchema(session, options(options), Seqs.seq(files)).getOrElse(() -> null);
    }

    /** Return *schema* without the columns that are in *others*, too. */
    public static StructType without(SparkSession session, StructType schema, StructType others) {
        boolean isExact = session.sessionState().conf().caseSensitiveAnalysis();
        var names = new TreeSet<>(isExact ? Comparator.<String>naturalOrder() : String.CASE_INSENSITIVE_ORDER);
        names.addAll(List.of(others.fieldNames()));
        return new StructType(Stream.of(schema.fields()).filter(field -> !names.contains(field.name())).toArray(StructField[]::new));
    }

    /** Return the partitions that *directories* below *root* are, with the types of *types*; null: as their values look. */
    public static PartitionSpec partitions(SparkSession session, Path root, List<Path> directories, StructType types) {
        var conf = session.sessionState().conf();
        return PartitioningUtils$.MODULE$.parsePartitions(Seqs.seq(directories), conf.partitionColumnTypeInferenceEnabled(),
                Set$.MODULE$.<Path>empty().$plus(root), Option.apply(types), conf.caseSensitiveAnalysis(), conf.validatePartitionColumns(),
                conf.sessionLocalTimeZone(), false);
    }

    /** Return a read of *files* as Spark resolves it. */
    public static LogicalPlan relation(SparkSession session, FileIndex files, StructType dataSchema, FileFormat format,
            java.util.Map<String, String> options) {
        DataSourceUtils.verifySchema(format, dataSchema, true);
        var relation = new HadoopFsRelation(files, files.partitionSchema(), dataSchema.asNullable(), Option.empty(), format,
                options(options), session);
        return LogicalRelation$.MODULE$.apply(relation, false);
    }

    /** Whether *format* is columnar. */
    public static boolean isColumnar(FileFormat format) {
        return format instanceof ParquetFileFormat || format instanceof OrcFileFormat;
    }
}
