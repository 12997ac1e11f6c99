package onager.spark43;

import onager.values.Seqs;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.execution.SparkPlan;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/** An operator of Onager in a bound plan: a leaf, or over one child. It equals only itself. */
@SuppressWarnings("serial")
public abstract class OwnExec extends SparkPlan {
    /** Null for a leaf. */
    protected final SparkPlan child;

    protected OwnExec(SparkPlan child) {
        this.child = child;
    }

    /** Return it over another child; not called for a leaf. */
    protected SparkPlan over(SparkPlan other) {
        throw new UnsupportedOperationException(nodeName() + " is a leaf");
    }

    /** Return its parameters, for Spark's text of a plan. */
    protected abstract Object[] parts();

    @Override
    public Seq<Attribute> output() {
        return child.output();
    }

    @Override
    public final Seq<SparkPlan> children() {
        return child == null ? Seqs.seq() : Seqs.seq(child);
    }

    @Override
    public final SparkPlan withNewChildrenInternal(IndexedSeq<SparkPlan> children) {
        return children.isEmpty() ? this : over(children.apply(0));
    }

    @Override
    public final int productArity() {
        return parts().length;
    }

    @Override
    public final Object productElement(int n) {
        return parts()[n];
    }

    @Override
    public final boolean canEqual(Object other) {
        return other instanceof OwnExec;
    }

    @Override
    public final boolean equals(Object other) {
        return this == other;
    }

    @Override
    public final int hashCode() {
        return System.identityHashCode(this);
    }
}
