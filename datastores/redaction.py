"""Removes secrets from texts: keys, tokens and passwords, by their usual formats.

It runs before imports are stored, and before chats enter any store but the history. The value is
removed, its name stays. A missed secret leaks into drafts, a false positive costs one word: when in
doubt, remove. detect-secrets was rejected: 0.35 ms per line, and three false positives per line of
command-line help.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

REDACTED = "[redacted]"

PRIVATE_KEY, ACCESS_TOKEN, PASSWORD = "private key", "access token", "password"
KEY_OR_TOKEN, WEBHOOK = "key or token", "webhook address"
"""Kinds of secrets."""


@dataclass(frozen=True, slots=True)
class SecretPattern:
    """One format of secrets.

    Attributes:
        kind: name for messages; plural with an s.
        hints: the lower-cased text must contain one of these, which is cheap to check.
        pattern: its group `secret`, or the whole match without such a group, is removed.
    """

    kind: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]


def redact(text: str) -> tuple[str, int]:
    """`text` without its secrets, and their number."""
    clean, kinds = redact_kinds(text)
    return clean, len(kinds)


def redact_kinds(text: str) -> tuple[str, list[str]]:
    """`text` without its secrets, and the kind of each."""
    lowered = text.lower()
    kinds: list[str] = []
    for secret in SECRET_PATTERNS:
        if any(hint in lowered for hint in secret.hints):
            text, hits = secret.pattern.subn(_redacted, text)
            kinds += [secret.kind] * hits
    return text, kinds


def _redacted(match: re.Match[str]) -> str:
    if "secret" not in match.re.groupindex:
        return REDACTED
    start, end = match.span("secret")
    return match[0][: start - match.start()] + REDACTED + match[0][end - match.start() :]


def _token(*hints: str, pattern: str) -> SecretPattern:
    """A token with a known prefix, which must start a word."""
    return SecretPattern(ACCESS_TOKEN, hints, re.compile(rf"(?<![A-Za-z0-9_]){pattern}"))


_NOT_DUMMY = r"(?![{<$%*\[]|x{3,}|\.{3}|your\b|your[_-]|example)"
"""Excludes the placeholders of documentation: `{{token}}`, `<key>`, `$TOKEN`, `xxx`."""

_NOT_CODE = (
    r"(?!(?:none|null|nil|true|false|self|str|string|text|bytes|int|bool|any|object|optional"
    r"|undefined|required|pass(?:word|wd)?|secret|token|\w{0,40}_(?:pass(?:word|wd)?|secret|token))"
    r"(?![\w-])|(?:[a-z_]\w{0,40}\.){1,5}[a-z_]\w{0,40}(?![\w-]))"
)
"""Excludes code after `password =`: a type, a constant, a variable, an attribute."""

_PASSWORD = r"(?:pass(?:word|wd|phrase)|pwd)"
_KEY = (
    r"(?:secret|token|credential|(?:api|access|private|client|auth|account|secret)[ _-]?key"
    r"|client[_-]?secret)"
)
_NAME_END = r"s?(?:[_-][a-z0-9_-]{1,20})?['\"]?[ \t]{0,4}(?:={1,3}>?|:=?)[ \t]{0,4}"
"""The rest of a name and the separator before its value, in code, JSON, YAML, INI or a shell."""

_BARE = r"[^\s'\"`,;(){}<>\[\]&|\\]"
_QUOTED = r"[^\n'\"`\\]"

SECRET_PATTERNS = (
    SecretPattern(
        PRIVATE_KEY,
        ("private key",),
        # Base64 has no hyphen, so this ends where the key does, in one pass.
        re.compile(
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----[^-]*"
            r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?"
        ),
    ),
    _token("akia", "asia", "abia", "acca", pattern=r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b"),
    _token("ghp_", "gho_", "ghu_", "ghs_", "ghr_", pattern=r"gh[pousr]_[A-Za-z0-9]{30,255}"),
    _token("github_pat_", pattern=r"github_pat_[A-Za-z0-9_]{22,255}"),
    _token("glpat-", pattern=r"glpat-[A-Za-z0-9_-]{20,}"),
    _token("xox", "xapp-", pattern=r"(?:xox[a-z]|xapp)-[A-Za-z0-9-]{10,}"),
    _token("sk-", pattern=r"sk-(?=[A-Za-z_-]{0,80}[0-9])[A-Za-z0-9_-]{20,}"),
    _token("_live_", "_test_", pattern=r"[srp]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    _token("whsec_", pattern=r"whsec_[A-Za-z0-9+/=]{16,}"),
    _token("aiza", pattern=r"AIza[A-Za-z0-9_-]{35}"),
    _token("ya29.", pattern=r"ya29\.[A-Za-z0-9_-]{20,}"),
    _token("gocspx-", pattern=r"GOCSPX-[A-Za-z0-9_-]{20,}"),
    _token("hf_", pattern=r"hf_[A-Za-z0-9]{30,}"),
    _token("npm_", pattern=r"npm_[A-Za-z0-9]{36}"),
    _token("pypi-", pattern=r"pypi-[A-Za-z0-9_-]{50,}"),
    _token("sg.", pattern=r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}"),
    _token("_v1_", pattern=r"do[oprt]_v1_[a-f0-9]{64}"),
    _token(":aa", pattern=r"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}"),
    SecretPattern(
        ACCESS_TOKEN,
        ("eyj",),
        # A JSON Web Token. For each run of its letters, the lookahead tests once whether another
        # run follows, however many tokens could start in it.
        re.compile(
            r"(?<![A-Za-z0-9_-])(?=[A-Za-z0-9_-]++\.eyJ[A-Za-z0-9_-]{8})(?:[A-Za-z0-9_]*+-)*?"
            r"(?P<secret>eyJ[A-Za-z0-9_-]{8,}+\.eyJ[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]*)?)"
        ),
    ),
    SecretPattern(
        WEBHOOK,
        ("hooks.slack.com", "discord"),
        re.compile(
            r"(?:hooks\.slack\.com/(?:services|workflows)/|discord(?:app)?\.com/api/webhooks/)"
            r"(?P<secret>[A-Za-z0-9/_+-]{20,})"
        ),
    ),
    SecretPattern(
        ACCESS_TOKEN,
        ("authorization",),
        re.compile(
            r"(?i)\bauthorization['\"]?\s{0,4}[:=]\s{0,4}['\"]?(?:bearer|basic|token)\s{1,4}"
            rf"{_NOT_DUMMY}(?P<secret>[a-z0-9._~+/=-]{{6,}})"
        ),
    ),
    SecretPattern(
        ACCESS_TOKEN,
        ("bearer",),
        re.compile(
            rf"(?i)\bbearer\s{{1,4}}{_NOT_DUMMY}(?=[a-z._~+/=-]{{0,80}}[0-9])"
            r"(?P<secret>[a-z0-9._~+/=-]{16,})"
        ),
    ),
    SecretPattern(
        PASSWORD,
        ("://",),
        re.compile(
            rf"(?i)(?<=://)[^\s/:@'\"<>]{{0,100}}:{_NOT_DUMMY}(?!pass(?:word)?@)"
            r"(?P<secret>[^\s/@'\"<>]{1,200})(?=@)"
        ),
    ),
    SecretPattern(
        PASSWORD,
        ("pass", "pwd"),
        re.compile(
            rf"(?i){_PASSWORD}{_NAME_END}['\"`]{_NOT_DUMMY}{_NOT_CODE}(?P<secret>{_QUOTED}{{4,200}})"
        ),
    ),
    SecretPattern(
        PASSWORD,
        ("pass", "pwd"),
        re.compile(
            rf"(?i){_PASSWORD}{_NAME_END}{_NOT_DUMMY}{_NOT_CODE}(?P<secret>{_BARE}{{4,200}}+)(?![(\[{{<])"
        ),
    ),
    SecretPattern(
        PASSWORD,
        ("pass", "pwd"),
        re.compile(
            rf"(?i){_PASSWORD} (?:is|was)[: ] {{0,2}}['\"]?{_NOT_DUMMY}(?=[^\s0-9]{{0,80}}[0-9])"
            r"(?P<secret>[^\s'\"`]{4,200})"
        ),
    ),
    SecretPattern(
        KEY_OR_TOKEN,
        ("secret", "token", "key", "credential"),
        re.compile(
            rf"(?i){_KEY}{_NAME_END}(['\"`]?){_NOT_DUMMY}{_NOT_CODE}(?=[^\s0-9]{{0,80}}[0-9])"
            rf"(?=[^\sa-z]{{0,80}}[a-z])(?P<secret>{_BARE}{{8,500}}+)(?![(\[{{<])"
        ),
    ),
    SecretPattern(
        KEY_OR_TOKEN,
        ("--pass", "--token", "--api-key", "--secret", "sshpass"),
        re.compile(
            r"(?i)(?:--(?:pass(?:word|wd|phrase)?|token|api-key|secret)(?: {1,4}|=)|\bsshpass -p ?)"
            rf"(['\"]?)(?![-=]){_NOT_DUMMY}{_NOT_CODE}(?P<secret>{_BARE}{{4,}}+)"
        ),
    ),
    SecretPattern(
        PASSWORD,
        ("curl", "wget"),
        re.compile(
            r"\b(?:curl|wget)\b[^\n]{0,200}?\s(?:-u|--user)[ =]?['\"]?[^\s:'\"{<$]{1,64}:"
            rf"{_NOT_DUMMY}(?P<secret>[^\s'\"]{{1,200}})"
        ),
    ),
    SecretPattern(
        PASSWORD,
        ("mysql", "mariadb"),
        re.compile(
            r"\b(?:mysql|mariadb)[a-z-]{0,8}\b[^\n]{0,200}?\s-p(?!ort\b|rotocol\b)['\"]?"
            rf"{_NOT_DUMMY}(?P<secret>[^\s'\"]{{4,200}})"
        ),
    ),
)
