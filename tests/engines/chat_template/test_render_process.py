"""A template renders in a process of its own; a hostile one ends only that."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from datastores.errors import ModelError
from engines.chat_template import render_process
from engines.chat_template.render_process import (
    EMPTY,
    NONE,
    UNDEFINED,
    RenderProcess,
    TemplateRefusalError,
)
from tests.waiting import until

MESSAGES = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]

HARMLESS = {
    "{{ bos_token }}{% for m in messages %}{{ m['role'] ~ ':' ~ m.content|trim ~ 1 }};"
    "{% if loop.first %}{% continue %}{% endif %}{% break %}"
    "{% endfor %}": "<s>user:hi1;assistant:yo1;",
    "{% generation %}{{ messages[0].content }}{% endgeneration %}": "hi",
    "{{ messages|tojson }}": '[{"role": "user", "content": "hi"}, '
    '{"role": "assistant", "content": "yo"}]',
    "{{ {'a': '<é>'}|tojson(indent=2) }}": '{\n  "a": "<é>"\n}',
    "{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|join(',') }}": "hi",
    "{{ 'a-b'.split('-')[1] }}{{ '%s!' % 'c' }}{{ '{}?'.format('d') }}": "bc!d?",
    "{% macro twice(x) %}{{ x }}{{ x }}{% endmacro %}{{ twice('ab')|upper }}": "ABAB",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 2 ** 3 %}{% endfor %}"
    "{{ ns.n }}{{ strftime_now('%Y')|length }}{{ 'a\nb'|indent(2) }}": "164a\n  b",
    "  {% if add_generation_prompt %}\nx\n  {% endif %}\n": "x\n",
}

HOSTILE = [
    "{{ 'a' * 10 ** 10 }}",
    "{% for i in range(10 ** 9) %}{% endfor %}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "{{ '{0:{1}}'.format(1, 3000000000)|length }}",
    "{{ ('a'*20000).translate({97: 'b'*100000})|length }}",
    "{{ ''.encode().zfill(3000000000)|length }}",
    "{{ 'a' * 9999999 }}",
    "{{ ''.__class__.__mro__ }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update(role='system') }}",
    "{% include '/etc/passwd' %}",
    "{{ raise_exception('no') }}",
    "{{ nothing.at.all }}",
    "{{ 1 / 0 }}",
    "{% if %}",
]
"""Templates that take too much memory, reach outside, or fail."""

ENDLESS = [
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{{ 10 ** (10 ** 10) }}",
    "{% set ns = namespace(l=('x',)) %}{% for i in range(40) %}{% set ns.l = (ns.l, ns.l) %}"
    "{% endfor %}{% set d = {ns.l: 1} %}x",
]
"""Templates that hold the interpreter lock, so that only the end of the process stops them."""


def rendering(source: str) -> str:
    return RenderProcess(source, {"bos_token": "<s>"}).render(MESSAGES, NONE)


Children = Callable[[], list[psutil.Process]]


@pytest.fixture
def children() -> Children:
    """Processes started during the test."""
    before = set(psutil.Process().children())
    return lambda: [one for one in psutil.Process().children() if one not in before]


@pytest.mark.parametrize("source", HARMLESS, ids=range(len(HARMLESS)))
def test_what_templates_use_works(source: str) -> None:
    assert rendering(source) == HARMLESS[source]


@pytest.mark.parametrize("source", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_templates_fail(source: str) -> None:
    with pytest.raises(ModelError, match="chat template fails"):
        rendering(source)


@pytest.mark.parametrize("source", ENDLESS, ids=range(len(ENDLESS)))
def test_endless_templates_are_ended(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.setattr(render_process, "TIMEOUT_S", 0.5)
    with pytest.raises(ModelError, match=r"it takes longer than 0\.5 s"):
        rendering(source)


def test_a_refusal_ends_nothing(children: Children) -> None:
    template = RenderProcess("{{ raise_exception('only two') if messages|length > 2 }}ok", {})
    with pytest.raises(TemplateRefusalError, match="only two"):
        template.render([*MESSAGES, *MESSAGES], NONE)
    assert template.render(MESSAGES, NONE) == "ok"
    assert len(children()) == 1


def test_a_killed_process_is_started_again(children: Children) -> None:
    template = RenderProcess("{{ messages|length }}", {})
    assert template.render(MESSAGES, NONE) == "2"
    (first,) = children()
    first.kill()
    until(lambda: first not in children() or first.status() == psutil.STATUS_ZOMBIE)
    assert template.render(MESSAGES, NONE) == "2"
    assert first not in children()


def test_a_process_that_cannot_start_is_reported_and_retried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    template = RenderProcess("{{ messages|length }}", {})
    with monkeypatch.context() as patched:
        patched.setattr(render_process, "ChildProcess", refuse)
        with pytest.raises(ModelError, match="no process for the chat template: Cannot allocate"):
            template.render(MESSAGES, NONE)
    assert template.render(MESSAGES, NONE) == "2"


def test_a_process_ends_with_its_template(children: Children) -> None:
    template = RenderProcess("{{ messages|length }}", {})
    template.render(MESSAGES, NONE)
    assert children()
    del template
    assert not children()


def test_threads_take_turns() -> None:
    template = RenderProcess("{{ messages[0].content }}", {})

    def render(number: int) -> str:
        return template.render([{"role": "user", "content": f"{number}"}], NONE)

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(render, range(40))) == [f"{number}" for number in range(40)]


VARIABLES = "{{ tools is defined }} {{ tools is none }} {{ functions is string }}"


@pytest.mark.parametrize(
    ("others", "text"),
    [(NONE, "True True False"), (UNDEFINED, "False False False"), (EMPTY, "True False True")],
)
def test_other_variables(others: str, text: str) -> None:
    assert RenderProcess(VARIABLES, {}).render(MESSAGES, others) == text
