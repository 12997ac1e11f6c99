package onager.access;

import java.net.URI;
import onager.failure.RefusedException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FilterFileSystem;

/** Stands for a file system that the operator has not allowed. */
public final class RefusedFiles extends FilterFileSystem {
    @Override
    public void initialize(URI name, Configuration conf) {
        String scheme = String.valueOf(name.getScheme());
        throw new RefusedException("the file system " + scheme + " is not among those that jobs may use; " + Access.flag(scheme + ":"));
    }
}
