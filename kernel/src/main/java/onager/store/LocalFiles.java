package onager.store;

import java.io.IOException;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/** Hadoop's local file system without a forked `chmod` for every file, and without checksum files beside the data. */
public final class LocalFiles extends LocalFileSystem {
    public LocalFiles() {
        super(new Raw());
        setVerifyChecksum(false);
        setWriteChecksum(false);
    }

    /** Files get the permissions that the process's umask gives. */
    private static final class Raw extends RawLocalFileSystem {
        @Override
        public void setPermission(Path path, FsPermission permission) throws IOException {}
    }
}
