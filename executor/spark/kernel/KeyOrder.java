package onager.kernel;

import java.io.IOException;
import java.io.Serializable;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.codegen.LazilyGeneratedOrdering;
import scala.collection.immutable.Seq;

/** By what rows are sorted: what their keys are, and how Spark compares keys. */
final class KeyOrder implements Serializable {
    private final Seq by;
    private final Seq output;
    private final LazilyGeneratedOrdering ofKeys;

    /** *by*: `SortOrder`s over the attributes *output*. */
    KeyOrder(Seq by, Seq output) {
        this.by = by;
        this.output = output;
        Object[] bound = new Object[by.size()];
        for (int i = 0; i < bound.length; i++) {
            bound[i] = Spark43.ofColumn((SortOrder) by.apply(i), i);
        }
        this.ofKeys = new LazilyGeneratedOrdering(Kernel.seq(bound));
    }

    /** Return the order that `PlanTools.ordering` serialised, of rows with the attributes *output*. */
    static KeyOrder decoded(byte[] by, Seq output) throws IOException, ClassNotFoundException {
        return new KeyOrder((Seq) Kernel.decode(by), output);
    }

    /** How many columns a key has. */
    int fields() {
        return by.size();
    }

    /** Whether rows that are in this order are in the order *other*, too. */
    boolean satisfies(Seq other) {
        return SortOrder.orderingSatisfies(by, other);
    }

    /** Return what makes the key of a row; it gives the same object again and again. */
    UnsafeProjection projection() {
        Object[] keys = new Object[by.size()];
        for (int i = 0; i < keys.length; i++) {
            keys[i] = ((SortOrder) by.apply(i)).child();
        }
        return UnsafeProjection.create(Kernel.seq(keys), output);
    }

    /** Compare two keys. */
    int compare(InternalRow a, InternalRow b) {
        return ofKeys.compare(a, b);
    }

    /** Return what compares rows as their keys compare. */
    LazilyGeneratedOrdering ofRows() {
        return new LazilyGeneratedOrdering(by, output);
    }
}
