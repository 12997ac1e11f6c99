"""Errors of scripts."""

LIMIT = "ONAGER_SCRIPT_LIMIT"
"""The error class of a job whose script does not end."""


class ScriptError(Exception):
    """A condition that a statement of a script has raised: a handler of the script may handle it."""

    def __init__(self, message: str, condition: str = "", sql_state: str = "", *, is_analysis: bool = False) -> None:
        """*condition*, *sql_state*: Spark's; without them no handler handles it. *is_analysis*: nothing has run."""
        super().__init__(message)
        self.condition = condition
        self.sql_state = sql_state
        self.is_analysis = is_analysis
        self.line = 0
        """The line of the script that raised it, from 1; 0: not known."""

    def getCondition(self) -> str:  # noqa: N802 - as PySpark calls it
        """Return the name of the condition."""
        return self.condition

    def getSqlState(self) -> str:  # noqa: N802 - as PySpark calls it
        """Return the SQLSTATE."""
        return self.sql_state


class ScriptLimitError(ScriptError):
    """A script does not end: it has made as many calls as a program may make, or a loop does nothing."""


def not_boolean(text: str) -> ScriptError:
    """Return Spark's error of a condition that is no truth value."""
    message = f"[INVALID_BOOLEAN_STATEMENT] Boolean statement is expected in the condition, but {text} was found."
    return ScriptError(f"{message} SQLSTATE: 22546", "INVALID_BOOLEAN_STATEMENT", "22546")


def too_many_rows() -> ScriptError:
    """Return Spark's error of a query whose one row is wanted, and which has more."""
    message = "[ROW_SUBQUERY_TOO_MANY_ROWS] More than one row returned by a subquery used as a row."
    return ScriptError(f"{message} SQLSTATE: 21000", "ROW_SUBQUERY_TOO_MANY_ROWS", "21000")


def already_exists(label: str, name: str) -> ScriptError:
    """Return Spark's error of a variable that a block has already."""
    message = f"[VARIABLE_ALREADY_EXISTS] Cannot create the variable `{label}`.`{name}` because it already exists."
    return ScriptError(f"{message} SQLSTATE: 42723", "VARIABLE_ALREADY_EXISTS", "42723")


def duplicate_handler(kind: str, what: str) -> ScriptError:
    """Return Spark's error of a block with two handlers for one condition; *kind*: ``CONDITION`` or ``SQLSTATE``."""
    condition = f"DUPLICATE_EXCEPTION_HANDLER.{kind}"
    message = f"[{condition}] Found duplicate handlers for the same {kind.lower()} {what}: remove one of them."
    return ScriptError(f"{message} SQLSTATE: 42734", condition, "42734")
