"""A hostile template fails; it does not hang, eat memory, reach out or change anything."""

from __future__ import annotations

import sys
from time import monotonic

import pytest

from datastores.errors import ModelError
from engines.chat_template import sandbox
from engines.chat_template.sandbox import JinjaTemplate

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
    "{{ [1] * 10 ** 10 }}",
    "{{ 10 ** (10 ** 10) }}",
    "{% for i in range(10 ** 9) %}{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "{% set n = namespace(x='a') %}{% for i in range(60) %}"
    "{% set y %}{{ n.x }}{{ n.x }}{% endset %}{% set n.x = y %}{% endfor %}",
    "{% for i in range(99999) %}{{ 'abcdefghij' * 100 }}{% endfor %}",
    "{{ '%99999999999d' % 1 }}",
    "{{ '%*d' % (99999999, 1) }}",
    "{{ '{:>999999999999}'.format(1) }}",
    "{{ 'x'.ljust(10 ** 12) }}{{ '\t'.expandtabs(10 ** 12) }}",
    "{{ 'x'|center(10 ** 12) }}",
    "{% set x = 'a' * 1000000 %}{{ x.replace('a', x) }}",
    "{% set x = 'a' * 1000000 %}{{ x|replace('a', x) }}",
    "{% set x = 'a' * 1000000 %}{{ x.join(x) }}",
    "{% set x = ['a' * 1000] * 100000 %}{{ x }}",
    "{% set x = ['a' * 1000] * 100000 %}{{ x|join }}",
    "{% set x = ['a' * 1000] * 100000 %}{{ (x|tojson)|length }}",
    "{% set x = ['a' * 1000] * 100000 %}{{ (x|string)|length }}",
    "{% set m = [{'c': 'a' * 99999}] * 99999 %}{{ m|map(attribute='c')|join }}",
    "{% set m = [{'c': 'a' * 99999}] * 99999 %}{{ ''.join(m|map(attribute='c')) }}",
    "{{ ('a\n' * 100000)|indent(100000) }}",
    "{{ lipsum(n=10 ** 9) }}",
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


@pytest.mark.parametrize("source", HARMLESS, ids=range(len(HARMLESS)))
def test_what_templates_use_works(source: str) -> None:
    template = JinjaTemplate(source, bos_token="<s>")
    assert template.render(MESSAGES, add_generation_prompt=True) == HARMLESS[source]


@pytest.mark.parametrize("source", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_templates_are_stopped(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.setattr(sandbox, "TIMEOUT_S", 0.2)
    tracing, began = sys.gettrace(), monotonic()
    with pytest.raises(ModelError, match="chat template fails"):
        JinjaTemplate(source).render(MESSAGES, add_generation_prompt=True)
    assert monotonic() - began < 20
    assert sys.gettrace() is tracing
    assert MESSAGES[0] == {"role": "user", "content": "hi"}


def test_every_rendering_has_its_own_quota() -> None:
    template = JinjaTemplate("{{ 'a' * 600000 }}")
    for _ in range(3):
        assert len(template.render(MESSAGES, add_generation_prompt=False)) == 600_000
