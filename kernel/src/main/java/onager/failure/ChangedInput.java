package onager.failure;

/** What a stage reads is not what it was when the job was planned. */
@SuppressWarnings("serial")
public final class ChangedInput extends RuntimeException {
    public ChangedInput(String message) {
        super(message);
    }
}
