package onager.kernel;

import java.io.IOException;
import java.io.OutputStream;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.spark.util.SerializableConfiguration;

/**
 * The exchange directory: plain files where it is local (Hadoop's local file system forks a process for every file that
 * it makes), Hadoop's FileSystem where its path has another scheme. Files appear whole, by a rename, or not at all. Local ones are
 * for this user alone, or for a group by the setting `spark.onager.exchangeAccess`.
 */
public final class Store implements Serializable {
    private static final int OF_GROUP_DIRECTORY = 02770;
    private static final int OF_GROUP_FILE = 0660;

    public final String root;
    private final boolean local;
    private final SerializableConfiguration conf;
    private final String writer;
    private final boolean isOfGroup;

    public Store(String root, SerializableConfiguration conf) {
        this(root, conf, "");
    }

    /** *writer*: the life of the executor whose files these are; unfinished ones bear its name. */
    public Store(String root, SerializableConfiguration conf, String writer) {
        this.root = root.startsWith("file:") ? Paths.get(java.net.URI.create(triple(root))).toString() : root;
        this.local = this.root.indexOf(":/") < 0;
        this.conf = conf;
        this.writer = writer.isEmpty() ? "" : "." + writer;
        org.apache.spark.SparkEnv env = org.apache.spark.SparkEnv.get();
        this.isOfGroup = env != null && env.conf().get("spark.onager.exchangeAccess", "owner").equals("group");
    }

    private static FileAttribute[] only(String permissions) {
        return new FileAttribute[] {PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString(permissions))};
    }

    /** Make *directory* and those above it, below the root, for this user alone, or for its group, whatever the umask. */
    private void makeDirectories(Path directory) throws IOException {
        if (Files.isDirectory(directory, new LinkOption[0])) {
            return;
        }
        Path top = directory;
        Path base = Paths.get(root, new String[0]);
        List made = new ArrayList();
        while (!top.equals(base) && !Files.isDirectory(top, new LinkOption[0])) {
            made.add(0, top);
            top = top.getParent();
        }
        for (int i = 0; i < made.size(); i++) {
            Path one = (Path) made.get(i);
            try {
                Files.createDirectory(one, only("rwx------"));
                share(one, OF_GROUP_DIRECTORY);
            } catch (java.nio.file.FileAlreadyExistsException e) {
                // another has made it just now
            }
        }
    }

    private void share(Path path, int mode) throws IOException {
        if (isOfGroup) {
            Files.setAttribute(path, "unix:mode", Integer.valueOf(mode), new LinkOption[0]);
        }
    }

    private static String triple(String uri) {
        return uri.startsWith("file:///") ? uri : "file://" + uri.substring("file:".length());
    }

    /** Return the path of the file called *name* (slashes allowed) below the directory. */
    public String path(String name) {
        return root + "/" + name;
    }

    private FileSystem hadoop(String path) throws IOException {
        Configuration c = conf.value();
        return new org.apache.hadoop.fs.Path(path).getFileSystem(c);
    }

    /** A file being written: its bytes go to a hidden name until `commit`. */
    public final class Pending {
        private final String temporary;
        private final String path;
        private final OutputStream out;
        public long position = 0;

        Pending(String path, String temporary, OutputStream out) {
            this.path = path;
            this.temporary = temporary;
            this.out = out;
        }

        public void write(byte[] bytes, int offset, int length) throws IOException {
            try {
                out.write(bytes, offset, length);
            } catch (java.nio.channels.ClosedByInterruptException e) {
                throw e;
            } catch (IOException e) {
                throw ExchangeFailure.ofWrite(root, e);
            }
            position += length;
        }

        public void commit() throws IOException {
            try {
                out.close();
                rename(temporary, path);
            } catch (IOException e) {
                throw ExchangeFailure.ofWrite(root, e);
            }
        }

        /** Drop what was written; used when the execution failed, and never throws. */
        public void abort() {
            try {
                out.close();
            } catch (Throwable e) {
                // the file is thrown away whatever close says
            }
            try {
                if (local) {
                    Files.deleteIfExists(Paths.get(temporary, new String[0]));
                } else {
                    hadoop(temporary).delete(new org.apache.hadoop.fs.Path(temporary), false);
                }
            } catch (Throwable e) {
                // left behind; it goes with the job's directory
            }
        }
    }

    private void rename(String from, String to) throws IOException {
        if (local) {
            Files.move(Paths.get(from, new String[0]), Paths.get(to, new String[0]),
                    new java.nio.file.CopyOption[] {StandardCopyOption.ATOMIC_MOVE});
        } else if (!hadoop(from).rename(new org.apache.hadoop.fs.Path(from), new org.apache.hadoop.fs.Path(to))) {
            throw new IOException("renaming " + from + " to " + to + " was refused");
        }
    }

    /** Make the directory *name* for files that are begun with `createIn`; the root itself is not made. */
    public void prepare(String name) throws IOException {
        if (local) {
            check();
            try {
                makeDirectories(Paths.get(path(name), new String[0]));
            } catch (IOException e) {
                throw ExchangeFailure.ofWrite(root, e);
            }
        }
    }

    /**
     * Return a place for what is to be read once by this process, in the directory *name*, which `prepare` made, and marked as
     * unfinished; that of an exchange behind a URI is among this machine's temporary files.
     */
    SpillFile spill(String name, String file) {
        return local
                ? new SpillFile(path(name), "." + file + writer + ".tmp")
                : new SpillFile(org.apache.spark.util.Utils.getLocalDir(org.apache.spark.SparkEnv.get().conf()));
    }

    private void check() throws ExchangeFailure {
        if (!Files.isDirectory(Paths.get(root, new String[0]), new java.nio.file.LinkOption[0])) {
            throw new ExchangeFailure("exchange directory " + root + " is not there (or not a directory): create or mount it", null);
        }
    }

    /** Begin the file *name*; directories between the root and it are made, the root itself is not. */
    public Pending create(String name) throws IOException {
        return create(name, true);
    }

    /** Begin the file *name* where `prepare` made a directory: a job's end takes that away, and who is late fails. */
    public Pending createIn(String name) throws IOException {
        return create(name, false);
    }

    private Pending create(String name, boolean makes) throws IOException {
        String path = path(name);
        int slash = path.lastIndexOf('/');
        String temporary = path.substring(0, slash + 1) + "." + path.substring(slash + 1) + writer + ".tmp";
        try {
            if (!local) {
                return new Pending(path, temporary, hadoop(path).create(new org.apache.hadoop.fs.Path(temporary), true));
            }
            check();
            Path file = Paths.get(temporary, new String[0]);
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
            return new Pending(path, temporary, Channels.newOutputStream(channel));
        } catch (ExchangeFailure e) {
            throw e;
        } catch (IOException e) {
            throw ExchangeFailure.ofWrite(root, e);
        }
    }

    /** Remove the file *name*, if it is there. */
    public void delete(String name) throws IOException {
        if (local) {
            Files.deleteIfExists(Paths.get(path(name), new String[0]));
        } else {
            hadoop(root).delete(new org.apache.hadoop.fs.Path(path(name)), false);
        }
    }

    /** Remove the directory *name*, but for the files *keep* below it, through Hadoop; what is gone already is passed over. */
    public void removeAll(String name, java.util.List keep) throws IOException {
        org.apache.hadoop.fs.Path directory = new org.apache.hadoop.fs.Path(path(name));
        FileSystem fs = hadoop(root);
        if (keep.isEmpty()) {
            fs.delete(directory, true);
            return;
        }
        int start = directory.toUri().getPath().length() + 1;
        try {
            org.apache.hadoop.fs.RemoteIterator files = fs.listFiles(directory, true);
            while (files.hasNext()) {
                org.apache.hadoop.fs.Path file = ((org.apache.hadoop.fs.FileStatus) files.next()).getPath();
                if (!keep.contains(file.toUri().getPath().substring(start))) {
                    fs.delete(file, false);
                }
            }
        } catch (java.io.FileNotFoundException e) {
            // it is gone, and with it what was to be kept
        }
    }

    private FileChannel open(Path file) throws IOException {
        Set options = new HashSet();
        options.add(StandardOpenOption.WRITE);
        options.add(StandardOpenOption.CREATE);
        options.add(StandardOpenOption.TRUNCATE_EXISTING);
        FileChannel channel = FileChannel.open(file, options, only("rw-------"));
        share(file, OF_GROUP_FILE);
        return channel;
    }

    /** A file open for reading at any position. */
    public abstract static class Source {
        public long size;

        /** Read exactly *length* bytes from *position* on; a shorter file is an EOFException. */
        public abstract void read(long position, byte[] into, int length) throws IOException;

        public abstract void close();
    }

    /** Whether the directory itself can be seen; tells a lost file from a lost volume. */
    public boolean exists() {
        try {
            return local
                    ? Files.isDirectory(Paths.get(root, new String[0]), new java.nio.file.LinkOption[0])
                    : hadoop(root).exists(new org.apache.hadoop.fs.Path(root));
        } catch (IOException e) {
            return false;
        }
    }

    public Source open(String name) throws IOException {
        return local ? (Source) new LocalSource(path(name)) : (Source) new HadoopSource(path(name));
    }

    private static final class LocalSource extends Source {
        private final FileChannel channel;

        LocalSource(String path) throws IOException {
            channel = FileChannel.open(Paths.get(path, new String[0]), new java.nio.file.OpenOption[] {StandardOpenOption.READ});
            size = channel.size();
        }

        public void read(long position, byte[] into, int length) throws IOException {
            ByteBuffer buffer = ByteBuffer.wrap(into, 0, length);
            while (buffer.hasRemaining()) {
                int n = channel.read(buffer, position + buffer.position());
                if (n < 0) {
                    throw new java.io.EOFException("it ends early");
                }
            }
        }

        public void close() {
            try {
                channel.close();
            } catch (IOException e) {
                // nothing was written through it
            }
        }
    }

    private final class HadoopSource extends Source {
        private final FSDataInputStream in;

        HadoopSource(String path) throws IOException {
            org.apache.hadoop.fs.Path p = new org.apache.hadoop.fs.Path(path);
            FileSystem fs = hadoop(path);
            size = fs.getFileStatus(p).getLen();
            in = fs.open(p);
        }

        public void read(long position, byte[] into, int length) throws IOException {
            in.readFully(position, into, 0, length);
        }

        public void close() {
            try {
                in.close();
            } catch (IOException e) {
                // nothing was written through it
            }
        }
    }
}
