package onager.plan;

import java.util.stream.Stream;
import org.apache.hadoop.fs.Path;

/** A catalog that keeps what the queries of its sessions read. */
public interface NotesReads {
    /** Note the *roots* of a relation of files in a query that is being analyzed. */
    void noteRead(Stream<Path> roots);
}
