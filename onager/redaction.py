"""Redaction: values of settings and options that are secret by their names, or by their content."""

import re
from collections.abc import Mapping
from typing import Any, Final

REDACTED: Final = "*********(redacted)"
"""The text that Spark shows."""
REGEX_KEY: Final = "spark.redaction.regex"
"""A job may set its own. Matching it could take any time, so its words are searched for, besides our own."""
_SECRET: Final = re.compile("(?i)secret|password|token|access[.]?key")
"""Source: Spark's default of `spark.redaction.regex`."""
_HINTS: Final = ("secret", "password", "token", "accesskey", "access.key")
"""The words of `_SECRET`, for a quick check that a large text has none of them."""
_WORD: Final = re.compile(r"[A-Za-z0-9_-]{3,64}")
_LONGEST_REGEX: Final = 1024
_MAX_WORDS: Final = 32
_IN_TEXT: Final = re.compile(
    r"""(?ix) ( (?<![\w.-]) (?=[\w.-]*?(?:secret|password|token|access[.]?key)) [\w.-]++ (?<!file)
                ["'`]? \s{0,4}+ [=:] (?!>?\s{0,4}\*{9}\(redacted\)(?![^\s"',;&)}\]])) \s{0,4}+ )
    ( "(?:[^"\\]|\\.){0,4096}+"? | '(?:[^'\\]|\\.){0,4096}+'? | [^\s"',;&)}\]]{1,4096}+ )"""
)
"""It begins at whole words only, so each character is examined only a few times, whatever the text is."""
_OPTION: Final = re.compile(
    r"""(?ix) (?<![\w.-]) ([\w.-]++) (?<!file) ["'`]?+ \s{0,16}+ (?:=>?)?+ \s{0,16}+ (?=r?["']|\d)"""
)
"""An option's name in SQL, up to its value: a blank between them is enough. A quote right after the name belongs to
it."""
_OPTION_VALUE: Final = re.compile(
    r"""(?isx) (?: \s{0,16}+ r?(?: "(?:[^"\\]|\\.)*+"? | '(?:[^'\\]|\\.)*+'? ) )++ | \d[\w.]*+"""
)
"""A number, or consecutive strings, which SQL joins."""
_SET: Final = re.compile(r"(?i)(\bset\s{1,16}+(`[^`]++`|[\w.:-]++)\s{0,16}+=\s{0,16}+)([^;\n]*+)")
_FILE: Final = ("-file", "_file")
"""Suffixes of our own settings that name the file of a secret, which readers of the setting need to know."""
_IN_ADDRESS: Final = re.compile(r"(://[^\s/:@]{0,256}+:)[^\s/@]{1,256}+(?=@)")


def is_secret(text: str, words: frozenset[str] = frozenset()) -> bool:
    """Return whether *text* sounds like a secret, or contains one of *words* (of `words_of`)."""
    if _SECRET.search(text):
        return True
    lowered = text.lower() if words else ""
    return any(word in lowered for word in words)


def words_of(conf: Mapping[str, str]) -> frozenset[str]:
    """Return the words in the job's own `spark.redaction.regex`; they redact too much rather than too little."""
    found = _WORD.findall(conf.get(REGEX_KEY, "")[:_LONGEST_REGEX])
    return frozenset(word.lower() for word in found[:_MAX_WORDS])


def shown_value(name: str, value: str, words: frozenset[str] = frozenset()) -> str:
    """Return *value* of the setting or option *name* as it may be shown: redacted as Spark does, without logins."""
    if name == REGEX_KEY:
        return value
    if name.endswith(_FILE):
        return without_logins(value)
    if is_secret(name, words) or is_secret(value, words):
        return REDACTED
    return without_logins(value)


def shown_text(text: str) -> str:
    """Return a text for people without the secret values of settings in it, such as ``password=…``."""
    if not may_hold_secrets(text):
        return text
    return without_logins(_IN_TEXT.sub(rf"\1{REDACTED}", text))


def may_hold_secrets(text: str) -> bool:
    """Return whether *text* needs a closer look, which takes a while for a large one."""
    lowered = text.lower()
    return any(hint in lowered for hint in (*_HINTS, "://", REGEX_KEY))


def without_logins(text: str) -> str:
    """Return *text* without the passwords of ``scheme://user:password@host``."""
    return _IN_ADDRESS.sub(rf"\1{REDACTED}", text) if "://" in text else text


def shown_script(text: str, words: frozenset[str] = frozenset()) -> str:
    """Return an SQL script without the secrets that it sets, or passes as options."""

    def shown(found: re.Match[str]) -> str:
        return f"{found[1]}{shown_value(found[2], found[3], words)}"

    text = without_logins(_SET.sub(shown, text))
    return _without_options(text, words) if is_secret(text, words) else text


def shown_name(name: str, words: frozenset[str] = frozenset()) -> str:
    """Return the name of a job or of a step, which may be the beginning of its script, without secrets."""
    return shown_text(shown_script(name, words))


def _without_options(text: str, words: frozenset[str]) -> str:
    parts, at = [], 0
    for name in _OPTION.finditer(text):
        if name.start() >= at and is_secret(name[1], words) and (value := _OPTION_VALUE.match(text, name.end())):
            parts += [text[at : name.end()], REDACTED]
            at = value.end()
    return "".join([*parts, text[at:]])


def shown_json(value: Any, words: frozenset[str] = frozenset()) -> Any:
    """Return a JSON value with the secrets redacted in its settings, options, scripts, names and arguments."""
    if isinstance(value, dict):
        conf = value.get("conf")
        if isinstance(conf, dict):
            words |= words_of(conf)
        return {key: _shown_entry(key, each, words) for key, each in value.items()}
    if isinstance(value, list):
        return [shown_json(each, words) for each in value]
    return without_logins(value) if isinstance(value, str) else value


def _shown_entry(key: str, value: Any, words: frozenset[str]) -> Any:
    if key in ("conf", "options", "properties"):
        return _shown_pairs(value, words)
    if key == "text" and isinstance(value, str):
        return shown_script(value, words)
    if key == "name" and isinstance(value, str):
        return shown_name(value, words)
    return shown_text(value) if key == "arguments_json" and isinstance(value, str) else shown_json(value, words)


def _shown_pairs(pairs: Any, words: frozenset[str]) -> Any:
    if isinstance(pairs, dict):
        return {key: shown_value(key, str(value), words) for key, value in pairs.items()}
    if isinstance(pairs, list):
        return [[str(key), shown_value(str(key), str(value), words)] for key, value in pairs]
    return pairs
