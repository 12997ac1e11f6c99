package onager.sort;

import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import onager.spark43.Expressions;
import onager.values.Seqs;
import onager.values.Serialization;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.codegen.LazilyGeneratedOrdering;
import scala.collection.immutable.Seq;

/** A sort order: extracts the key of a row, and compares keys as Spark does. */
@SuppressWarnings("serial")
public final class KeyOrder implements Serializable {
    private final Seq<SortOrder> by;
    private final Seq<Attribute> output;
    private final LazilyGeneratedOrdering ofKeys;

    /** *by* refers to the attributes *output*. */
    private KeyOrder(Seq<SortOrder> by, Seq<Attribute> output) {
        this.by = by;
        this.output = output;
        var bound = new ArrayList<SortOrder>();
        for (var order : Seqs.list(by)) {
            bound.add(Expressions.ofColumn(order, bound.size()));
        }
        this.ofKeys = Expressions.ordering(Seqs.seq(bound));
    }

    /** Return the order that `Cutting.make` serialised, of rows with the attributes *output*. */
    public static KeyOrder decoded(byte[] by, Seq<Attribute> output) {
        try {
            return new KeyOrder(Serialization.<Seq<SortOrder>>decode(by), output);
        } catch (IOException e) {
            throw new java.io.UncheckedIOException(e);
        } catch (ClassNotFoundException e) {
            throw new IllegalStateException(e);
        }
    }

    /** The number of columns of a key. */
    int fields() {
        return by.size();
    }

    /** Whether rows in this order are also in the order *other*. */
    public boolean satisfies(Seq<SortOrder> other) {
        return SortOrder.orderingSatisfies(by, other);
    }

    /** Return the projection from a row to its key; it reuses one object. */
    public UnsafeProjection projection() {
        Seq<Expression> keys = Seqs.seq(Seqs.list(by).stream().map(SortOrder::child).toList());
        return UnsafeProjection.create(keys, output);
    }

    /** Compare two keys. */
    int compare(InternalRow a, InternalRow b) {
        return ofKeys.compare(a, b);
    }

    /** Return a comparator of rows by their keys. */
    LazilyGeneratedOrdering ofRows() {
        return Expressions.ordering(by, output);
    }
}
