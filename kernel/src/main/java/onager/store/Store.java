package onager.store;

import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.io.Serializable;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.FileChannel;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.Set;
import onager.failure.ExchangeFailure;
import org.apache.spark.SparkEnv;

/**
 * The exchange directory: plain files, since Hadoop's local file system forks a process for each new file. A rename makes files appear
 * atomically. They are accessible to this user only or, by the setting `spark.onager.exchangeAccess`, to a group.
 */
@SuppressWarnings("serial")
public final class Store implements Serializable {
    private static final int OF_GROUP_DIRECTORY = 02770;
    private static final int OF_GROUP_FILE = 0660;

    private final String root;
    private final String writer;
    private final boolean isOfGroup;

    /** *root*: a path, or a URI of the scheme `file`; *writer*: the executor's incarnation, a part of the names of its unfinished files. */
    public Store(String root, String writer) {
        this.root = root.startsWith("file:") ? Path.of(URI.create(triple(root))).toString() : root;
        this.writer = writer.isEmpty() ? "" : "." + writer;
        SparkEnv env = SparkEnv.get();
        this.isOfGroup = env != null && env.conf().get("spark.onager.exchangeAccess", "owner").equals("group");
    }

    private static String triple(String uri) {
        return uri.startsWith("file:///") ? uri : "file://" + uri.substring("file:".length());
    }

    private static FileAttribute<?> only(String permissions) {
        return PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString(permissions));
    }

    public String root() {
        return root;
    }

    /** Return the path of the file called *name* (slashes allowed) below the directory. */
    public String path(String name) {
        return root + "/" + name;
    }

    /** Create *directory* and its parents below the root, for this user or its group, whatever the umask. */
    private void makeDirectories(Path directory) throws IOException {
        var missing = new ArrayList<Path>();
        for (Path at = directory; !at.equals(Path.of(root)) && !Files.isDirectory(at); at = at.getParent()) {
            missing.add(0, at);
        }
        for (Path one : missing) {
            try {
                Files.createDirectory(one, only("rwx------"));
                share(one, OF_GROUP_DIRECTORY);
            } catch (FileAlreadyExistsException e) {
                // another thread or process has just created it
            }
        }
    }

    private void share(Path path, int mode) throws IOException {
        if (isOfGroup) {
            Files.setAttribute(path, "unix:mode", mode);
        }
    }

    /** A file that is being written, under a hidden name until `commit`. */
    public final class Pending {
        private final String temporary;
        private final String path;
        private final OutputStream out;
        private final FileChannel channel;
        private long position = 0;

        Pending(String path, String temporary, FileChannel channel) {
            this.path = path;
            this.temporary = temporary;
            this.out = Channels.newOutputStream(channel);
            this.channel = channel;
        }

        /** Return the number of bytes written. */
        public long position() {
            return position;
        }

        public void write(byte[] bytes, int offset, int length) throws IOException {
            try {
                out.write(bytes, offset, length);
            } catch (ClosedByInterruptException e) {
                throw e;
            } catch (IOException e) {
                throw ExchangeFailure.ofWrite(root, e);
            }
            position += length;
        }

        public void commit() throws IOException {
            try {
                out.close();
                Files.move(Path.of(temporary), Path.of(path), StandardCopyOption.ATOMIC_MOVE);
            } catch (IOException e) {
                throw ExchangeFailure.ofWrite(root, e);
            }
        }

        /** Commit a file that has to survive a loss of power: nobody would write it again. */
        public void commitDurably() throws IOException {
            try {
                channel.force(true);
                commit();
                Durable.syncUp(Path.of(path).getParent(), Path.of(root));
            } catch (ClosedByInterruptException e) {
                throw e;
            } catch (IOException e) {
                throw ExchangeFailure.ofWrite(root, e);
            }
        }

        /** Discard the file, because the execution failed; never throws. */
        public void abort() {
            try {
                out.close();
            } catch (Throwable e) {
                // the file is discarded even if close fails
            }
            try {
                Files.deleteIfExists(Path.of(temporary));
            } catch (Throwable e) {
                // it is removed with the job's directory
            }
        }
    }

    /** Create the directory *name* for files of `createIn`; the root must exist. */
    public void prepare(String name) throws IOException {
        check();
        try {
            makeDirectories(Path.of(path(name)));
        } catch (IOException e) {
            throw ExchangeFailure.ofWrite(root, e);
        }
    }

    /** Return a spill file, with the name of an unfinished file, in the directory *name*, which `prepare` created. */
    public SpillFile spill(String name, String file) {
        return new SpillFile(path(name), "." + file + writer + ".tmp");
    }

    /** Throw if the exchange directory does not exist. */
    public void check() throws ExchangeFailure {
        if (!exists()) {
            throw ExchangeFailure.ofMissing(root, null);
        }
    }

    /** Start the file *name*; directories below the root are created, but the root must exist. */
    public Pending create(String name) throws IOException {
        return create(name, true);
    }

    /** Start the file *name* in a directory that `prepare` created; it fails once the job's end has removed the directory. */
    public Pending createIn(String name) throws IOException {
        return create(name, false);
    }

    private Pending create(String name, boolean makes) throws IOException {
        String path = path(name);
        int slash = path.lastIndexOf('/');
        String temporary = path.substring(0, slash + 1) + "." + path.substring(slash + 1) + writer + ".tmp";
        try {
            check();
            Path file = Path.of(temporary);
            FileChannel channel;
            try {
                channel = open(file);
            } catch (NoSuchFileException e) {
                if (!makes) {
                    throw e;
                }
                makeDirectories(file.getParent());
                channel = open(file);
            }
            return new Pending(path, temporary, channel);
        } catch (ExchangeFailure e) {
            throw e;
        } catch (IOException e) {
            throw ExchangeFailure.ofWrite(root, e);
        }
    }

    private FileChannel open(Path file) throws IOException {
        var options = Set.of(StandardOpenOption.WRITE, StandardOpenOption.CREATE, StandardOpenOption.TRUNCATE_EXISTING);
        FileChannel channel = FileChannel.open(file, options, only("rw-------"));
        share(file, OF_GROUP_FILE);
        return channel;
    }

    /** Remove the file *name* if it exists. */
    public void delete(String name) throws IOException {
        Files.deleteIfExists(Path.of(path(name)));
    }

    /** Try to remove the file *name*; if that fails, it is removed with the job. */
    public void discard(String name) {
        try {
            delete(name);
        } catch (IOException e) {
            // it is removed with the job
        }
    }

    /** Whether the exchange directory exists; tells a lost file from a lost volume. */
    public boolean exists() {
        return Files.isDirectory(Path.of(root));
    }

    public Source open(String name) throws IOException {
        return new LocalSource(path(name));
    }

    /** A file open for reading at any position. */
    public abstract static class Source implements AutoCloseable {
        /** In bytes. */
        public final long size;

        protected Source(long size) {
            this.size = size;
        }

        /** Read exactly *length* bytes from *position*; throws an EOFException if the file is shorter. */
        public abstract void read(long position, byte[] into, int length) throws IOException;

        protected abstract void end() throws IOException;

        @Override
        public final void close() {
            try {
                end();
            } catch (IOException e) {
                // nothing was written through it
            }
        }
    }

    private static final class LocalSource extends Source {
        private final FileChannel channel;

        LocalSource(String path) throws IOException {
            this(FileChannel.open(Path.of(path), StandardOpenOption.READ));
        }

        private LocalSource(FileChannel channel) throws IOException {
            super(channel.size());
            this.channel = channel;
        }

        @Override
        public void read(long position, byte[] into, int length) throws IOException {
            ByteBuffer buffer = ByteBuffer.wrap(into, 0, length);
            while (buffer.hasRemaining()) {
                if (channel.read(buffer, position + buffer.position()) < 0) {
                    throw new EOFException("it ends early");
                }
            }
        }

        @Override
        protected void end() throws IOException {
            channel.close();
        }
    }
}
