package onager.failure;

/** The input of a stage has changed since the job was planned. */
@SuppressWarnings("serial")
public final class ChangedInput extends RuntimeException {
    public ChangedInput(String message) {
        super(message);
    }
}
