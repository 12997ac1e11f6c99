package onager.store;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.channels.ClosedChannelException;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * A file for frames that do not fit memory; created when first needed, and deleted by `close`. Several threads use it, and an interrupt of
 * one must not close it for the others, as it would close a `FileChannel`.
 */
public final class SpillFile {
    private final String directory;
    private final String name;
    private long end = 0;
    private RandomAccessFile file = null;
    private boolean isClosed = false;

    /** A file with the unique name *name* in *directory*, which must exist when the file is created. */
    public SpillFile(String directory, String name) {
        this.directory = directory;
        this.name = name;
    }

    private RandomAccessFile file() throws IOException {
        if (isClosed) {
            throw new ClosedChannelException();
        }
        if (file == null) {
            Path path = Path.of(directory, name);
            file = new RandomAccessFile(path.toFile(), "rw");
            Files.delete(path); // the file disappears with this process, however it ends
        }
        return file;
    }

    /** Return the number of bytes ever written. */
    public synchronized long written() {
        return end;
    }

    /** Append bytes, and return their position. */
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
            // it is discarded even if close fails
        }
    }
}
