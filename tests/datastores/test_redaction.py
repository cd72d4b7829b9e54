"""Secrets go, whatever stands around them; what only looks like one stays."""

from __future__ import annotations

import pytest

from datastores.redaction import REDACTED, SECRET_PATTERNS, SecretPattern, redact
from tests.datastores.regex_steps import StepCounter

# Put together here, so that no scanner takes this file for a leak.
BODY = "a1B2c3D4e5F6g7H8i9J0"
SECRETS = [
    "AKIA" + "IOSFODNN7ABCDEFG",
    "ASIA" + "IOSFODNN7ABCDEFG",
    "ghp_" + BODY * 2,
    "github_pat_" + BODY * 2,
    "glpat-" + BODY,
    "xoxb-" + "1234567890-" + BODY,
    "sk-" + BODY * 2,
    "sk-proj-" + BODY * 2,
    "sk-ant-api03-" + BODY * 4,
    "sk_live_" + BODY,
    "AIza" + BODY + BODY[:15],
    "hf_" + BODY * 2,
    "npm_" + BODY + BODY[:16],
    "pypi-" + BODY * 4,
    "SG." + BODY + "." + BODY * 2,
    "1234567890:AA" + BODY + BODY[:13],
    "eyJ" + BODY + ".eyJ" + BODY + "." + BODY,
    f"-----BEGIN RSA PRIVATE KEY-----\n{BODY}\n{BODY}=\n-----END RSA PRIVATE KEY-----",
    f"-----BEGIN OPENSSH PRIVATE KEY-----\n{BODY}",
]

NAMED = [
    ("password=", "hunter2"),
    ("password = ", "swordfish"),
    ("DB_PASSWORD=", "sup3r-s3cret"),
    ("PGPASSWORD=", "hunter2"),
    ("passwd: ", "swordfish"),
    ("pwd: ", "hunter2"),
    ('"password": "', "hunter2"),
    ("password: '", "correct horse battery staple"),
    ('<user password="', "hunter2"),
    ("my password is ", "Hunter2!"),
    ("--password ", "hunter2"),
    ("--password=", "hunter2"),
    ("sshpass -p ", "hunter2"),
    ("mysql -u root -p", "hunter2"),
    ("curl -s -u bob:", "hunter2"),
    ("API_KEY=", BODY),
    ('api_key = "', BODY),
    ("client_secret: ", BODY),
    ("export GITHUB_TOKEN=", BODY),
    ("aws_secret_access_key = ", "wJalrXUtnFEMI/K7MDENG/bPxRfiCY0123456789"),
    ("Authorization: Bearer ", BODY),
    ("authorization: Basic ", "dXNlcjpwYXNz"),
    ("AccountKey=", BODY + "=="),
]

HARMLESS = [
    "password = get_password()",
    "password=password",
    "password = args.password",
    "password: str, token: str | None = None",
    "password=$PASSWORD",
    "--password {{password}}",
    "password: <password>",
    "the password is incorrect",
    "token = tokenizer.next()",
    "max_tokens = 12345678",
    "tokenizer: llama-3.1-8b",
    "if token == other_token:",
    "secret = os.environ['SECRET_1']",
    "Bearer token authentication",
    "class sk-loading-indicator-wide-element",
    "http://localhost:8080/x@y",
    "ssh://git@github.com:22/x",
    "scp a.txt user@host:path",
    "curl -u {{user}}:{{password}} https://example.org",
    "ask me about the task-1234567890123456789012",
]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("around", ["{}", "see {} here", 'key = "{}",', "({})", "a\n{}\nb"])
def test_tokens_go_wherever_they_stand(secret: str, around: str) -> None:
    text, count = redact(around.format(secret))
    assert REDACTED in text
    assert BODY[:16] not in text
    assert count


@pytest.mark.parametrize(("name", "secret"), NAMED)
def test_named_secrets_go_and_their_names_stay(name: str, secret: str) -> None:
    text, count = redact(f"before {name}{secret}\nafter")
    assert text.startswith(f"before {name}{REDACTED}")
    assert text.endswith("\nafter")
    assert count == 1


@pytest.mark.parametrize("scheme", ["postgres", "redis", "mongodb+srv", "https", "amqp"])
def test_addresses_lose_their_passwords_only(scheme: str) -> None:
    text, _ = redact(f"{scheme}://bob:hunter2@db.example.org:5432/x")
    assert text == f"{scheme}://bob:{REDACTED}@db.example.org:5432/x"


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert redact(text) == (text, 0)


@pytest.mark.parametrize("secret", [*SECRETS, *(name + value for name, value in NAMED)])
def test_redacting_again_changes_nothing(secret: str) -> None:
    once, _ = redact(secret)
    assert redact(once) == (once, 0)


NEARLY = [
    "-eyJ", "-eyJa.", "-----BEGIN A PRIVATE KEY-----", "-AKIA", "-ghp_", "github_pat_-", "-glpat",
    "-xoxb", "-sk-", "-sk_live_", "-ya29", "-SG.a", "1:AA-", "discord.com/api/webhooks/-",
    "authorization: ", "bearer a ", "a://b:", "password= ", "-pass_", "secret_token:", "--token a ",
    "curl -u ", "mysql -p ",
]  # fmt: skip


@pytest.mark.parametrize("nearly", NEARLY)
def test_twice_the_text_takes_twice_the_steps(nearly: str) -> None:
    """Texts come from folders of others: one that nearly holds a thousand secrets is read too."""
    length = 600 // len(nearly)
    for secret in SECRET_PATTERNS:
        if any(hint in nearly.lower() for hint in secret.hints):
            steps = [_steps(secret, nearly * count) for count in (length, 2 * length)]
            assert steps[1] <= 2.5 * steps[0] + length


def _steps(secret: SecretPattern, text: str) -> int:
    counter = StepCounter(secret.pattern, text)
    assert counter.search_all() == [found.span() for found in secret.pattern.finditer(text)]
    return counter.steps
