"""Chat templates of well-known models; but for the last three, without their parts for tools."""

from __future__ import annotations

from engines.chat_template.formats import CHATML_TEMPLATE

LLAMA_3 = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}"
    "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
    "+ message['content'] | trim + '<|eot_id|>' %}"
    "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}"
    "{{ content }}{% endfor %}"
    "{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)

QWEN_3 = """\
{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and \
not(message.content.startswith('<tool_response>') and \
message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n')\
.split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\\n<think>\\n' + \
reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

MISTRAL = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
    "{% endif %}"
    "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' ' + message['content'] + eos_token}}"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}"
    "{% endfor %}"
)

GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
    "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}"
    "{% else %}{% set role = message['role'] %}{% endif %}"
    "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}"
)

REASONER = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message.role == 'user' %}{{ '<|User|>' + message.content }}"
    "{% else %}{% set content = message.content %}"
    "{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}"
    "{{ '<|Assistant|>' + content + eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|Assistant|><think>\n' }}{% endif %}"
)
"""Like DeepSeek-R1's: the prompt opens the reasoning, and earlier answers lose theirs."""

QUOTING = (
    "{{ messages | tojson }}{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endfor %}"
    "{{ '<|im_start|>assistant\n' }}"
)
"""Writes contents twice, once quoted."""

UPPERCASE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content | upper }}"
    "<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
"""Rewrites contents."""

VICUNA = (
    "{% for message in messages %}{% if message.role == 'user' %}"
    "{{ 'USER: ' + message.content + '\n' }}"
    "{% elif message.role == 'assistant' %}{{ 'ASSISTANT: ' + message.content + eos_token + '\n' }}"
    "{% else %}{{ message.content + '\n' }}{% endif %}{% endfor %}ASSISTANT:"
)
"""Without control tokens but one."""

_REFUSE = "{{ raise_exception('refused') }}"
_MESSAGE = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
_END = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
_EACH, _NEXT = "{% for m in messages %}", "{% endfor %}"

AWKWARD = {
    "system first": (
        _EACH + "{% if m.role == 'system' and not loop.first %}" + _REFUSE + "{% endif %}"
        f"{_MESSAGE}{_NEXT}{_END}"
    ),
    "no system": (
        _EACH + "{% if m.role == 'system' %}" + _REFUSE + "{% endif %}" + _MESSAGE + _NEXT + _END
    ),
    "turns": (
        _EACH + "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}" + _REFUSE + "{% endif %}"
        f"{_MESSAGE}{_NEXT}{_END}"
    ),
    "turns after a system message": (
        "{% if messages[0].role == 'system' %}<<{{ messages[0].content }}>>"
        "{% set messages = messages[1:] %}{% endif %}"
        + _EACH
        + "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        + _REFUSE
        + "{% endif %}"
        + f"{_MESSAGE}{_NEXT}{_END}"
    ),
    "drops system": _EACH + "{% if m.role != 'system' %}" + _MESSAGE + "{% endif %}" + _NEXT + _END,
    "drops later system": (
        _EACH
        + "{% if m.role != 'system' or loop.first %}"
        + _MESSAGE
        + "{% endif %}"
        + _NEXT
        + _END
    ),
    "last system above all": (
        "{% set ns = namespace(s='') %}" + _EACH + "{% if m.role == 'system' %}"
        "{% set ns.s = m.content %}{% endif %}" + _NEXT + "{{ bos_token }}{{ ns.s }}"
        "{% for m in messages if m.role != 'system' %}" + _MESSAGE + _NEXT + _END
    ),
    "system in the last question": (
        "{% if messages[0].role == 'system' %}{% set s = messages[0].content %}"
        "{% set messages = messages[1:] %}{% endif %}" + _EACH + "{% if loop.last and s %}"
        "[{{ s }}]{% endif %}{{ m.content if m.role != 'system' }};" + _NEXT + _END
    ),
    "needs a system message": (
        "{% if messages[0].role != 'system' %}" + _REFUSE + "{% endif %}"
        f"{_EACH}{_MESSAGE}{_NEXT}{_END}"
    ),
    "parts": (
        _EACH + "<|im_start|>{{ m.role }}\n{% for c in m.content %}{% if c['type'] == 'text' %}"
        "{{ c['text'] }}{% endif %}{% endfor %}<|im_end|>\n" + _NEXT + _END
    ),
    "parts of the user alone": (
        _EACH + "<|im_start|>{{ m.role }}\n{% if m.role == 'user' %}{{ m.content[0].text }}"
        "{% else %}{{ '' + m.content }}{% endif %}<|im_end|>\n" + _NEXT + _END
    ),
    "parts, and the system first": (
        _EACH + "{% if m.role == 'system' and not loop.first %}" + _REFUSE + "{% endif %}"
        "<|im_start|>{{ m.role }}\n{{ m.content[0]['text'] }}<|im_end|>\n" + _NEXT + _END
    ),
    "tools": "{% for t in tools %}{{ t }}{% endfor %}" + _EACH + _MESSAGE + _NEXT + _END,
    "tools unless None": (
        "{% if tools is not none %}Tools: {{ tools|tojson }}{% endif %}"
        f"{_EACH}{_MESSAGE}{_NEXT}{_END}"
    ),
    "functions": "{{ functions + '\n' + datetime }}" + _EACH + _MESSAGE + _NEXT + _END,
    "sets fields of messages": (
        _EACH
        + "{% set m.content = 'so: ' + m.content %}{% set m.calls = [] %}"
        + _NEXT
        + "{% if messages[0].calls is defined %}"
        + _EACH
        + _MESSAGE
        + _NEXT
        + "{% endif %}"
        + _END
    ),
    "date": "{{ strftime_now('%d %B %Y') }}" + _EACH + _MESSAGE + _NEXT + _END,
    "one turn": "<|im_start|>user\n{{ messages[-1].content }}<|im_end|>\n" + _END,
    "trims": _EACH + "{{ m.role }}: {{ m.content | trim }}\n" + _NEXT + "assistant: ",
}
"""Each refuses, drops or wants something else in its own way."""

QWEN_2_5_TOOLS = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- endif %}
    {{- "\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) or \
(message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content }}
        {{- '\\n</tool_response><|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

LLAMA_3_TOOLS = """\
{%- for message in messages %}
    {%- if message.role == 'system' %}
        {{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
        {%- for t in tools %}
            {{- t | tojson(indent=4) }}
        {%- endfor %}
        {{- message.content + "<|eot_id|>" }}
    {%- elif 'tool_calls' in message %}
        {%- if message.tool_calls|length != 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
        {{- '{"name": "' + message.tool_calls[0].function.name + '", "parameters": ' }}
        {{- message.tool_calls[0].function.arguments | tojson }}
        {{- "}<|eot_id|>" }}
    {%- elif message.role == "tool" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {{- message.content | tojson }}
        {{- "<|eot_id|>" }}
    {%- else %}
        {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}
        {{- message.content + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

FORGETS_TOOLS = "{% if tools is none %}x{% endif %}" + CHATML_TEMPLATE
"""Mentions tools, and leaves them out."""
