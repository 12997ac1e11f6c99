"""Who hears what becomes of slots and launches of push executors."""


class PushObserver:
    """Hears it, and forgets it."""

    def launched(self, tasks: int, waited_s: float | None) -> None:
        """Take in that *tasks* of one stage were handed out, runnable for *waited_s* as far as that is known here."""

    def taken(self, took_s: float) -> None:
        """Take in that an executor has a task, *took_s* after it was handed out."""

    def refused(self, tasks: int) -> None:
        """Take in that an executor does not run *tasks*, or cannot be reached with them: they wait again."""

    def failed(self) -> None:
        """Take in that a call to an executor failed; it is made again."""

    def given_up(self, tasks: int) -> None:
        """Take in that *tasks* are sent no more, because their executor seems to be lost."""

    def sent_again(self, tasks: int) -> None:
        """Take in that *tasks* were in nobody's books, and are sent again."""
