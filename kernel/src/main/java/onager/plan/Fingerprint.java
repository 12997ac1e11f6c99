package onager.plan;

import java.io.DataOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Path;
import java.security.DigestOutputStream;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Collection;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import onager.values.Seqs;
import onager.values.Serialization;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.UserDefinedExpression;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.execution.BaseSubqueryExec;
import org.apache.spark.sql.execution.RDDScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.CalendarInterval;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;
import scala.Product;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The digest of what a fragment, or a leaf, computes: the same whenever a query is planned over the same files, whatever ids its columns
 * have by then. Of what this class does not know, and of users' functions, which may do anything, there is none.
 */
public final class Fingerprint {
    /** How leaves are called that stand for inputs of a stage. */
    private static final String PLACEHOLDER = "onager-input:";
    private static final String FIELD_ID = "parquet.field.id";
    /** How old a time in whole seconds must be: the clocks of stores differ. */
    private static final long TIME_IS_SETTLED_MS = 60_000;

    private final DataOutputStream out;
    private final Map<ExprId, Integer> columns = new HashMap<>();
    private final boolean hasNames;
    private final boolean isOfCache;

    /** *hasNames*: whether columns are known by their names, too, as those in files are. *isOfCache*: see `ofCachedLeaf`. */
    private Fingerprint(MessageDigest digest, boolean hasNames, boolean isOfCache) {
        this.out = new DataOutputStream(new DigestOutputStream(OutputStream.nullOutputStream(), digest));
        this.hasNames = hasNames;
        this.isOfCache = isOfCache;
    }

    private static final class UnknownException extends IOException {
        private static final long serialVersionUID = 1L;

        UnknownException(String what) {
            super(what);
        }
    }

    /** Something to be written. */
    private interface Content {
        void write(Fingerprint to) throws IOException;
    }

    /** Returns the digest of *fragment*, and of how *exchange*, unless null, distributes its rows; or null. */
    public static String of(SparkPlan fragment, SparkPlan exchange) throws IOException {
        return digest(false, false, to -> {
            to.add(fragment);
            to.add(fragment.output());
            if (exchange instanceof ShuffleExchangeExec shuffle) {
                to.add(shuffle.outputPartitioning());
            }
        });
    }

    /** Returns the digest of the leaf that is described in the file *description*, or null. */
    public static String ofLeaf(String description) throws IOException, ClassNotFoundException {
        return ofLeaf(description, false);
    }

    /**
     * Returns the digest of a leaf of what a program caches, or null. A file is the same as long as its time says so, be it new, and a Python
     * data source, of which nobody knows whether it changes, is always the same: Spark keeps the rows of both.
     */
    static String ofCachedLeaf(String description) throws IOException, ClassNotFoundException {
        return ofLeaf(description, true);
    }

    private static String ofLeaf(String description, boolean isOfCache) throws IOException, ClassNotFoundException {
        Leaves.Description leaf = Serialization.decode(java.nio.file.Files.readAllBytes(Path.of(description)));
        return digest(true, isOfCache, to -> to.leaf(leaf));
    }

    private static String digest(boolean hasNames, boolean isOfCache, Content content) throws IOException {
        try {
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            content.write(new Fingerprint(digest, hasNames, isOfCache));
            return HexFormat.of().formatHex(digest.digest());
        } catch (UnknownException | StackOverflowError e) {
            return null;
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }

    private void leaf(Leaves.Description leaf) throws IOException {
        text(leaf.getClass().getName());
        if (leaf instanceof Leaves.FilesOf scan) {
            StoredFiles files = scan.files();
            add(scan.output());
            columns(scan.required());
            add(scan.dataFilters());
            columns(files.partitionSchema());
            columns(files.dataSchema());
            text(files.format());
            add(files.options());
            add(files.roots());
            for (var directory : files.directories()) {
                add(directory.values());
                add(directory.paths());
                for (int i = 0; i < directory.paths().length; i++) {
                    out.writeLong(directory.numbers()[4 * i]);
                    out.writeLong(changed(directory.numbers()[4 * i + 1]));
                }
            }
        } else if (leaf instanceof Leaves.Rows rows) {
            add(rows.output());
            out.writeInt(rows.count());
            out.write(rows.packed());
        } else if (leaf instanceof Leaves.Numbers numbers) {
            add(numbers.output());
            out.writeLong(numbers.start());
            out.writeLong(numbers.end());
            out.writeLong(numbers.step());
            out.writeInt(numbers.slices());
        } else if (!(leaf instanceof Leaves.OneRow) && !(isOfCache && PartitionsScanExec.isOfPython(leaf))) {
            throw new UnknownException(leaf.getClass().getName());
        }
    }

    /**
     * Returns the time *ms* of a file if it would be another one had the file changed since it was listed. Stores that count in seconds
     * may give a file of this very second the same time twice.
     */
    private long changed(long ms) throws UnknownException {
        if (!isOfCache && (ms <= 0 || (ms % 1000 == 0 && ms > System.currentTimeMillis() - TIME_IS_SETTLED_MS))) {
            throw new UnknownException("the time of a file");
        }
        return ms;
    }

    /**
     * Writes a schema: of what else is known of its columns, which differs between reads of one file, only what readers go by, the value
     * where a file lacks the column and the id by which it is found there.
     */
    private void columns(StructType schema) throws IOException {
        out.writeInt(schema.length());
        for (StructField field : schema.fields()) {
            text(field.name());
            type(field.dataType());
            add(field.getExistenceDefaultValue());
            out.writeLong(field.metadata().contains(FIELD_ID) ? field.metadata().getLong(FIELD_ID) : -1);
        }
    }

    private void text(String text) throws IOException {
        out.writeInt(text.length());
        out.writeChars(text);
    }

    private void bytes(byte[] bytes) throws IOException {
        out.writeInt(bytes.length);
        out.write(bytes);
    }

    /** Writes *type* in both of its texts: the first one leaves out collations, the second one what its fields are besides. */
    private void type(DataType type) throws IOException {
        text(type.json());
        text(type.catalogString());
    }

    private void column(ExprId id) throws IOException {
        out.writeInt(columns.computeIfAbsent(id, key -> columns.size()));
    }

    private void all(String kind, Collection<?> things) throws IOException {
        text(kind);
        out.writeInt(things.size());
        for (Object thing : things) {
            add(thing);
        }
    }

    /** Writes *things* in an order of their own; none of them may name a column that was not named before. */
    private void unordered(String kind, Collection<?> things) throws IOException {
        text(kind);
        var digests = new java.util.ArrayList<String>();
        for (Object thing : things) {
            String one = digest(hasNames, isOfCache, to -> {
                to.columns.putAll(columns);
                to.add(thing);
            });
            if (one == null) {
                throw new UnknownException(kind);
            }
            digests.add(one);
        }
        digests.sort(null);
        all(kind, digests);
    }

    private void add(Object thing) throws IOException {
        if (thing == null) {
            text("null");
        } else if (thing instanceof Attribute attribute) {
            text("column");
            column(attribute.exprId());
            text(hasNames ? attribute.name() : "");
            type(attribute.dataType());
        } else if (thing instanceof ExprId id) {
            column(id);
        } else if (thing instanceof DataType type) {
            type(type);
        } else if (thing instanceof UserDefinedExpression) {
            throw new UnknownException("a function of a user");
        } else if (thing instanceof RDDScanExec scan) {
            text(placeholder(scan));
            add(scan.output());
        } else if (!collection(thing) && !value(thing)) {
            product(thing);
        }
    }

    private static String placeholder(RDDScanExec scan) throws IOException {
        if (!scan.name().startsWith(PLACEHOLDER)) {
            throw new UnknownException("an RDD");
        }
        return scan.name();
    }

    private boolean collection(Object thing) throws IOException {
        if (thing instanceof Option<?> option) {
            all("option", option.isDefined() ? java.util.Arrays.asList((Object) option.get()) : List.of());
        } else if (thing instanceof scala.collection.Seq<?> seq) {
            all("seq", Seqs.list(seq));
        } else if (thing instanceof Object[] array) {
            all("seq", java.util.Arrays.asList(array));
        } else if (thing instanceof List<?> list) {
            all("seq", list);
        } else if (thing instanceof scala.collection.Set<?> set) {
            unordered("set", CollectionConverters.asJava(set));
        } else if (thing instanceof scala.collection.Map<?, ?> map) {
            add(CollectionConverters.asJava(map));
        } else if (thing instanceof Map<?, ?> map) {
            unordered("map", map.entrySet().stream().map(each -> java.util.Arrays.<Object>asList(each.getKey(), each.getValue())).toList());
        } else {
            return false;
        }
        return true;
    }

    private boolean value(Object thing) throws IOException {
        boolean isText = thing instanceof String || thing instanceof Boolean || thing instanceof Number || thing instanceof Character
                || thing instanceof Decimal || thing instanceof CalendarInterval || thing instanceof Enum
                || thing instanceof scala.Enumeration.Value;
        text(thing.getClass().getName());
        if (isText) {
            text(thing.toString());
        } else if (thing instanceof Class<?> named) {
            text(named.getName());
        } else if (thing instanceof byte[] bytes) {
            bytes(bytes);
        } else if (thing instanceof UTF8String string) {
            bytes(string.getBytes()); // which need not be UTF-8
        } else if (thing instanceof UnsafeRow row) {
            add(row.getBytes());
        } else if (thing instanceof GenericInternalRow row) {
            add(row.values());
        } else if (thing instanceof GenericArrayData array) {
            add(array.array());
        } else {
            return false;
        }
        return true;
    }

    /** Writes a node of a plan, an expression, or any other case class, whose class was written. */
    private void product(Object thing) throws IOException {
        if (!(thing instanceof Product product)) {
            throw new UnknownException(thing.getClass().getName());
        }
        out.writeInt(product.productArity());
        for (Object part : Seqs.each(product.productIterator())) {
            // Subqueries are called by a number of the session's, and what a column is called makes no other row.
            boolean isName = part instanceof String && (product instanceof BaseSubqueryExec || product instanceof NamedExpression);
            add(isName ? null : part);
        }
        if (thing instanceof NamedExpression named) {
            column(named.exprId());
        }
    }
}
