package onager.kernel;

/** What a stage reads is not what it was when the job was planned. */
final class ChangedInput extends RuntimeException {
    ChangedInput(String message) {
        super(message);
    }
}
