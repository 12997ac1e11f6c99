package onager.spark43;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import onager.values.Seqs;
import org.apache.spark.api.python.SimplePythonFunction;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/** Python data sources, as Spark asks them for their partitions: in a worker, which gets the source pickled. */
public final class PythonSources {
    private PythonSources() {}

    /** Whether *table* is a Python data source. */
    public static boolean isOne(Table table) {
        return table instanceof PythonTable;
    }

    /** Throw an IllegalStateException unless Spark keeps data sources where they are looked for. */
    static void check() {
        Fields.of(PythonTable.class, "ds");
        Fields.of(PythonDataSourceV2.class, "dataSourceInPython");
    }

    private static PythonDataSourceV2 ds(Table table) {
        try {
            return (PythonDataSourceV2) Fields.of(PythonTable.class, "ds").get(table);
        } catch (IllegalAccessException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Return how workers are started for the data source *table*, in any process: without its class, and without a job's accumulator. */
    public static UserDefinedPythonDataSource worker(Table table) {
        var python = ds(table).source().dataSourceCls();
        return new UserDefinedPythonDataSource(new SimplePythonFunction(new byte[0], python.envVars(), python.pythonIncludes(),
                python.pythonExec(), python.pythonVer(), new ArrayList<>(), null));
    }

    /** Return the pickled data source of a read of *relation*. */
    public static byte[] pickled(DataSourceV2Relation relation) {
        var table = (PythonTable) relation.table();
        return ds(table).getOrCreateDataSourceInPython(table.name(), relation.options(), Option.apply(table.schema())).dataSource();
    }

    /** Let reads of *relation* that are planned from now on be of the data source *pickled*. */
    public static void replace(DataSourceV2Relation relation, byte[] pickled) {
        var table = (PythonTable) relation.table();
        var ds = ds(table);
        try {
            Fields.of(PythonDataSourceV2.class, "dataSourceInPython").set(ds, new PythonDataSourceCreationResult(pickled, table.schema()));
        } catch (IllegalAccessException e) {
            throw new IllegalStateException(e);
        }
        ds.setReadInfo(null); // of reads that were planned before
    }

    /** Return the pickled partitions of the data source *pickled*, as a *worker* finds them. */
    public static List<byte[]> partitions(UserDefinedPythonDataSource worker, byte[] pickled, StructType schema) {
        var info = worker.createReadInfoInPython(new PythonDataSourceCreationResult(pickled, schema), schema, false);
        return new ArrayList<>(Seqs.list(info.partitions()));
    }

    /** Return the partitions *pickled*, of which the first one has the number *first*. */
    public static List<InputPartition> partitions(List<byte[]> pickled, int first) {
        var made = new ArrayList<InputPartition>(pickled.size());
        for (byte[] each : pickled) {
            made.add(new PythonInputPartition(first + made.size(), each));
        }
        return made;
    }

    /** Return the pickled bytes of *partition*. */
    public static byte[] pickled(InputPartition partition) {
        return ((PythonInputPartition) partition).pickedPartition();
    }

    /** Return the pickle of what Python's *function* of *module* returns for *arguments*: bytes, or text. */
    public static byte[] pickledCall(String module, String function, Object... arguments) {
        var out = new ByteArrayOutputStream();
        out.write(0x80); // PROTO
        out.write(3);
        out.writeBytes(("c" + module + "\n" + function + "\n(").getBytes(StandardCharsets.US_ASCII)); // GLOBAL, MARK
        for (var argument : arguments) {
            byte[] content = argument instanceof byte[] bytes ? bytes : argument.toString().getBytes(StandardCharsets.UTF_8);
            out.write(argument instanceof byte[] ? 'B' : 'X'); // BINBYTES, BINUNICODE
            out.writeBytes(ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(content.length).array());
            out.writeBytes(content);
        }
        out.writeBytes("tR.".getBytes(StandardCharsets.US_ASCII)); // TUPLE, REDUCE, STOP
        return out.toByteArray();
    }
}
