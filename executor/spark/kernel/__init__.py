"""Python's interface to the kernel: every call of its Java classes, with typed arguments and results.

No other package names a class of the kernel. Objects that only the JVM can read (sessions, plans and their nodes) are
`JavaObject`; descriptions of work travel as JSON. A call takes 0.1 to 0.3 ms. Exceptions of the JVM are raised as py4j
raises them.
"""
