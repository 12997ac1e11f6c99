package onager.access;

import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.util.Arrays;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathHandle;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * Hadoop's local file system, for all of Spark: each file that is opened, and each directory that is listed, must be one that jobs may use,
 * wherever the links lead by which it is named. All kinds of listings, patterns included, come from `listStatus`: none has the folder of
 * executors' marks, so what `/data/*` means does not depend on whether `/data` is shared.
 */
public final class GuardedFiles extends LocalFileSystem {
    public GuardedFiles() {
        super(new Raw());
    }

    private static final class Raw extends RawLocalFileSystem {
        /** Throws if *path* is not for jobs. */
        private void check(Path path) {
            Access access = Access.current();
            if (access != null) {
                File file = pathToFile(path);
                access.check(file.toPath());
            }
        }

        /** Throws if *path*, or something below it, is not for jobs. */
        private void checkAll(Path path) {
            check(path);
            Access access = Access.current();
            if (access != null) {
                access.checkHolds(pathToFile(path).toPath());
            }
        }

        @Override
        public FSDataInputStream open(Path path, int buffer) throws IOException {
            check(path);
            return super.open(path, buffer);
        }

        @Override
        public FSDataInputStream open(PathHandle handle, int buffer) throws IOException {
            throw new UnsupportedOperationException("files are opened by their paths");
        }

        @Override
        public FileStatus[] listStatus(Path path) throws IOException {
            check(path);
            return Arrays.stream(super.listStatus(path)).filter(each -> !each.getPath().getName().equals(Access.PLACE)).toArray(FileStatus[]::new);
        }

        @Override
        public FSDataOutputStream append(Path path, int buffer, Progressable progress) throws IOException {
            check(path);
            return super.append(path, buffer, progress);
        }

        @Override
        protected OutputStream createOutputStream(Path path, boolean isAppended) throws IOException {
            check(path);
            return super.createOutputStream(path, isAppended);
        }

        @Override
        protected OutputStream createOutputStreamWithMode(Path path, boolean isAppended, FsPermission mode) throws IOException {
            check(path);
            return super.createOutputStreamWithMode(path, isAppended, mode);
        }

        @Override
        public void concat(Path path, Path[] others) throws IOException {
            check(path);
            for (Path other : others) {
                check(other);
            }
            super.concat(path, others);
        }

        @Override
        public boolean rename(Path from, Path to) throws IOException {
            checkAll(from);
            checkAll(to);
            return super.rename(from, to);
        }

        @Override
        public boolean truncate(Path path, long length) throws IOException {
            check(path);
            return super.truncate(path, length);
        }

        @Override
        public boolean delete(Path path, boolean isRecursive) throws IOException {
            checkAll(path);
            return super.delete(path, isRecursive);
        }

        @Override
        public boolean mkdirs(Path path) throws IOException {
            check(path);
            return super.mkdirs(path);
        }

        @Override
        public boolean mkdirs(Path path, FsPermission mode) throws IOException {
            check(path);
            return super.mkdirs(path, mode);
        }

        @Override
        public void createSymlink(Path target, Path link, boolean makesParents) throws IOException {
            check(target);
            check(link);
            super.createSymlink(target, link, makesParents);
        }

        @Override
        public void setPermission(Path path, FsPermission mode) throws IOException {
            check(path);
            super.setPermission(path, mode);
        }

        @Override
        public void setOwner(Path path, String user, String group) throws IOException {
            check(path);
            super.setOwner(path, user, group);
        }

        @Override
        public void setTimes(Path path, long modified, long accessed) throws IOException {
            check(path);
            super.setTimes(path, modified, accessed);
        }
    }
}
