package onager.spark43;

import java.util.Set;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.execution.datasources.DataSource$;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.binaryfile.BinaryFileFormat;
import org.apache.spark.sql.execution.datasources.csv.CSVFileFormat;
import org.apache.spark.sql.execution.datasources.json.JsonFileFormat;
import org.apache.spark.sql.execution.datasources.noop.NoopDataSource;
import org.apache.spark.sql.execution.datasources.noop.NoopTable$;
import org.apache.spark.sql.execution.datasources.orc.OrcFileFormat;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.datasources.text.TextFileFormat;
import org.apache.spark.sql.execution.datasources.v2.FileDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.csv.CSVDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.json.JsonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.orc.OrcDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.parquet.ParquetDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.text.TextDataSourceV2;
import org.apache.spark.sql.execution.datasources.xml.XmlFileFormat;
import org.apache.spark.sql.sources.DataSourceRegister;

/** What the names of data sources stand for. */
public final class Formats {
    private static final Set<Class<?>> PLAIN = Set.of(ParquetFileFormat.class, ParquetDataSourceV2.class, OrcFileFormat.class,
            OrcDataSourceV2.class, CSVFileFormat.class, CSVDataSourceV2.class, JsonFileFormat.class, JsonDataSourceV2.class,
            TextFileFormat.class, TextDataSourceV2.class, XmlFileFormat.class, BinaryFileFormat.class, NoopDataSource.class);

    private Formats() {}

    /** PLAIN: one of Spark's formats of files, or noop. UNKNOWN: Spark says what is wrong with it. */
    public enum Kind { PLAIN, PYTHON, UNKNOWN, OTHER_FILES, OTHER }

    /** Return the kind of the data source *name*, a format or a class; nothing of it is made. */
    public static Kind kind(SparkSession session, String name) {
        if (name.equalsIgnoreCase("hive")) {
            return Kind.UNKNOWN; // there is one only where the operator has configured Hive
        }
        Class<?> found;
        try {
            found = DataSource$.MODULE$.lookupDataSource(name, session.sessionState().conf());
        } catch (Exception | LinkageError e) {
            return Kind.UNKNOWN;
        }
        if (found == PythonDataSourceV2.class || PLAIN.contains(found)) {
            return found == PythonDataSourceV2.class ? Kind.PYTHON : Kind.PLAIN;
        }
        boolean isOfFiles = FileFormat.class.isAssignableFrom(found) || FileDataSourceV2.class.isAssignableFrom(found);
        return isOfFiles ? Kind.OTHER_FILES : Kind.OTHER;
    }

    /** Whether *table* is one of noop, or of a data source in Python. */
    public static boolean isOpen(Table table) {
        return table == NoopTable$.MODULE$ || PythonSources.isOne(table);
    }

    /** Return a name of *format*. */
    public static String name(FileFormat format) {
        return format instanceof DataSourceRegister named ? named.shortName() : format.getClass().getName();
    }
}
