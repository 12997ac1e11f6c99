package onager.kernel;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.SparkPlan;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/** A node of ours in a bound plan: a leaf, or over one child. It is equal to itself alone. */
abstract class OwnExec extends SparkPlan {
    /** null: it is a leaf. */
    final SparkPlan child;

    OwnExec(SparkPlan child) {
        this.child = child;
    }

    /** Return it over another child; not asked of a leaf. */
    abstract SparkPlan over(SparkPlan other);

    /** Return what it is made of, for Spark's text of a plan. */
    abstract Object[] parts();

    public Seq children() {
        List all = new ArrayList();
        if (child != null) {
            all.add(child);
        }
        return PlanTools.seq(all);
    }

    public TreeNode withNewChildrenInternal(IndexedSeq children) {
        return children.isEmpty() ? this : over((SparkPlan) children.apply(0));
    }

    public int productArity() {
        return parts().length;
    }

    public Object productElement(int n) {
        return parts()[n];
    }

    public boolean canEqual(Object other) {
        return other instanceof OwnExec;
    }

    public boolean equals(Object other) {
        return this == other;
    }

    public int hashCode() {
        return System.identityHashCode(this);
    }
}
