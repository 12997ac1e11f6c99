package onager.kernel;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.atomic.AtomicLong;

/** A file for frames that memory has no place for; made when first needed, gone when closed. */
final class SpillFile {
    private final String directory;
    private final String name;
    private final AtomicLong end = new AtomicLong();
    private FileChannel channel = null;
    private boolean isClosed = false;

    /** Make one in *directory* under a name that is nobody else's. */
    SpillFile(String directory) {
        this(directory, null);
    }

    /** Make one called *name*, which nobody else uses, in *directory*, which is there by then. */
    SpillFile(String directory, String name) {
        this.directory = directory;
        this.name = name;
    }

    private synchronized FileChannel channel() throws IOException {
        if (isClosed) {
            throw new java.nio.channels.ClosedChannelException();
        }
        if (channel == null) {
            Path path = name == null
                    ? Files.createTempFile(Paths.get(directory, new String[0]), "spill-", ".frames", new java.nio.file.attribute.FileAttribute[0])
                    : Paths.get(directory, new String[] {name});
            channel = FileChannel.open(path, new OpenOption[] {
                StandardOpenOption.READ, StandardOpenOption.WRITE, StandardOpenOption.CREATE, StandardOpenOption.DELETE_ON_CLOSE});
        }
        return channel;
    }

    /** Return how many bytes were ever written. */
    long written() {
        return end.get();
    }

    /** Write bytes; return where they are. */
    long write(byte[] bytes, int length) throws IOException {
        FileChannel to = channel();
        long position = end.getAndAdd(length);
        ByteBuffer buffer = ByteBuffer.wrap(bytes, 0, length);
        while (buffer.hasRemaining()) {
            to.write(buffer, position + buffer.position());
        }
        return position;
    }

    byte[] read(long position, int length) throws IOException {
        FileChannel from = channel();
        ByteBuffer buffer = ByteBuffer.allocate(length);
        while (buffer.hasRemaining()) {
            if (from.read(buffer, position + buffer.position()) < 0) {
                throw new java.io.EOFException("the spill file ends early");
            }
        }
        return buffer.array();
    }

    synchronized void close() {
        isClosed = true;
        if (channel != null) {
            try {
                channel.close();
            } catch (IOException e) {
                // it is thrown away whatever close says
            }
        }
    }
}
