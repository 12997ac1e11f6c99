package onager.store;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.channels.ClosedChannelException;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * A file for frames that memory has no place for; made when first needed, gone when closed. Several threads use it, and any of
 * them may be interrupted: that must not close it for the others, as it would a `FileChannel`.
 */
public final class SpillFile {
    private final String directory;
    private final String name;
    private long end = 0;
    private RandomAccessFile file = null;
    private boolean isClosed = false;

    /** Make one in *directory* under a name that is nobody else's. */
    public SpillFile(String directory) {
        this(directory, null);
    }

    /** Make one called *name*, which nobody else uses, in *directory*, which is there by then. */
    public SpillFile(String directory, String name) {
        this.directory = directory;
        this.name = name;
    }

    private RandomAccessFile file() throws IOException {
        if (isClosed) {
            throw new ClosedChannelException();
        }
        if (file == null) {
            Path path = name == null ? Files.createTempFile(Path.of(directory), "spill-", ".frames") : Path.of(directory, name);
            file = new RandomAccessFile(path.toFile(), "rw");
            Files.delete(path); // so it is gone with this process, however that ends
        }
        return file;
    }

    /** Return how many bytes were ever written. */
    public synchronized long written() {
        return end;
    }

    /** Write bytes; return where they are. */
    public synchronized long write(byte[] bytes, int length) throws IOException {
        RandomAccessFile to = file();
        long position = end;
        end += length;
        to.seek(position);
        to.write(bytes, 0, length);
        return position;
    }

    public synchronized byte[] read(long position, int length) throws IOException {
        RandomAccessFile from = file();
        var bytes = new byte[length];
        from.seek(position);
        from.readFully(bytes);
        return bytes;
    }

    public synchronized void close() {
        isClosed = true;
        try {
            if (file != null) {
                file.close();
            }
        } catch (IOException e) {
            // it is thrown away whatever close says
        }
    }
}
