"""The session in which a job is planned: its settings, and the files that it reads."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from onager.executor.spark.jvm import JavaObject, Jvm


class JavaSession:
    """A session, of which settings are read and changed together; see Java's `Sessions`."""

    def __init__(self, jvm: Jvm, session: JavaObject) -> None:
        self._java = jvm.java_class("onager.plan.Sessions")
        self._variables = jvm.java_class("onager.spark43.SessionVariables")
        self._session = session

    def activate(self) -> JavaObject:
        """Make it the active session of this thread; return the one before, for `restore`."""
        return self._java.activate(self._session)

    def restore(self, before: JavaObject) -> None:
        """Make *before* the active session of this thread; None: there is none."""
        self._java.activate(before)

    def settings(self, names: Iterable[str] = ()) -> dict[str, str]:
        """Return its settings, but for static ones, and those of *names*, even if they have their defaults."""
        return dict(json.loads(self._java.settings(self._session, json.dumps(list(names)))))

    def change(self, changes: Mapping[str, str | None]) -> None:
        """Change settings; None unsets one."""
        self._java.change(self._session, json.dumps(changes))

    def variables(self) -> dict[str, str]:
        """Return the variables of its SQL, as `set_variable` takes them, by their names in lower case."""
        found: dict[str, list[dict[str, Any]]] = {}
        for each in json.loads(str(self._variables.all(self._session))):
            found.setdefault(each["name"].lower(), []).append(each)
        return {name: json.dumps(alike) for name, alike in found.items()}

    def set_variables(self, variables: Mapping[str, str]) -> None:
        """Have just *variables*, as `variables` returned them."""
        gone = self.variables().keys() - variables.keys()
        for name, alike in {**dict.fromkeys(gone, "[]"), **variables}.items():
            self.set_variable(name, alike)

    def set_variable(self, name: str, alike: str) -> None:
        """Have, of the variables called *name* in any case, just *alike*, of `variables`; ``[]`` for none."""
        self._variables.make(self._session, name, alike)

    def read(self, file_format: str, options: Mapping[str, str], schema: Any, path: str) -> JavaObject:
        """Return the dataset of the files at *path*; *schema*: a StructType, or None to find it. Spark's errors."""
        columns = None if schema is None else schema.json()
        return self._java.read(self._session, file_format, json.dumps(options), columns, path)
