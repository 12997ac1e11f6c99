package onager.spark43;

import onager.values.Seqs;
import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.rdd.ShuffledRDDPartition;
import org.apache.spark.sql.catalyst.InternalRow;

/** An RDD of rows that Onager makes: without a parent, or with one that has the same partitions. */
@SuppressWarnings("serial")
public abstract class RowRDD extends RDD<InternalRow> {
    /** Without parents. */
    protected RowRDD(SparkContext sc) {
        super(sc, Seqs.seq(), Seqs.tag(InternalRow.class));
    }

    protected RowRDD(RDD<InternalRow> parent) {
        super(parent, Seqs.tag(InternalRow.class));
    }

    protected final RDD<InternalRow> parent() {
        return firstParent(Seqs.tag(InternalRow.class));
    }

    /** Return *count* partitions that have only an index. */
    protected static Partition[] numbered(int count) {
        var all = new Partition[count];
        for (int i = 0; i < count; i++) {
            all[i] = new ShuffledRDDPartition(i);
        }
        return all;
    }
}
