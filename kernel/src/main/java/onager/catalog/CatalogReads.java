package onager.catalog;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import onager.failure.RefusedException;
import onager.values.Json;

/**
 * The reads of one planning from the store, one at a time. A thread of Python takes each request and answers it, while the thread that
 * needs it waits here and can be interrupted.
 */
final class CatalogReads {
    private static final String END = "";

    private final BlockingQueue<String> requests = new LinkedBlockingQueue<>();
    private final BlockingQueue<String> answers = new LinkedBlockingQueue<>();
    private volatile boolean isOver = false;

    /** Returns the answer to *request*; both are JSON. */
    JsonNode read(Object request) {
        try {
            if (isOver) {
                throw new RefusedException("the catalog cannot be read any more: the job's planning has ended");
            }
            requests.add(Json.text(request));
            String answer = answers.take();
            if (answer.equals(END)) {
                throw new RefusedException("the catalog could not be read");
            }
            return Json.tree(answer);
        } catch (InterruptedException e) {
            isOver = true; // a late answer must not be taken for that to another request
            Thread.currentThread().interrupt();
            throw new IllegalStateException("interrupted while the catalog was read", e);
        }
    }

    /** Waits for the next request, and returns it; null: there will be none. */
    String take() throws InterruptedException {
        String request = isOver ? END : requests.take();
        return request.equals(END) ? null : request;
    }

    void answer(String text) {
        answers.add(text);
    }

    /** Ends all reads: whoever waits for an answer gets an exception. */
    void close() {
        isOver = true;
        requests.add(END);
        answers.add(END);
    }
}
