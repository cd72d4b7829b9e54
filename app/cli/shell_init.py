"""`specchat shell-init`: a key binding that turns the typed line into a command.

The scripts call `specchat ask --command`, and put what it prints on the line; nothing is run.
"""

from __future__ import annotations

import click

BASH = r"""# specchat: Alt+A turns the line into a command. In ~/.bashrc:
#   eval "$(specchat shell-init bash)"
__specchat_command() {
    local found traps
    [[ -n $READLINE_LINE ]] || return
    traps=$(trap -p INT)
    trap : INT  # Ctrl+C ends the question, and leaves the line
    found=$(command specchat ask --command --no-stdin -- "$READLINE_LINE" </dev/null)
    eval "${traps:-trap - INT}"
    [[ -n $found ]] || return
    READLINE_LINE=$found
    READLINE_POINT=${#READLINE_LINE}
}
bind -x '"\ea": __specchat_command'
"""

ZSH = r"""# specchat: Alt+A turns the line into a command. In ~/.zshrc:
#   eval "$(specchat shell-init zsh)"
__specchat_command() {
    local found
    [[ -n $BUFFER ]] || return 0
    setopt local_options local_traps
    trap : INT  # Ctrl+C ends the question, and leaves the line
    zle -I
    found=$(command specchat ask --command --no-stdin -- "$BUFFER" </dev/null)
    [[ -n $found ]] || return 0
    BUFFER=$found
    CURSOR=${#BUFFER}
}
zle -N __specchat_command
bindkey '^[a' __specchat_command
"""

FISH = r"""# specchat: Alt+A turns the line into a command. In ~/.config/fish/config.fish:
#   specchat shell-init fish | source
function __specchat_command
    set -l line (commandline | string collect)
    test -n "$line"; or return
    set -l found (command specchat ask --command --no-stdin -- $line </dev/null | string collect)
    test -n "$found"; and commandline -r -- $found
    commandline -f repaint
end
bind \ea __specchat_command
"""

SCRIPTS = {"bash": BASH, "fish": FISH, "zsh": ZSH}


@click.command("shell-init")
@click.argument("shell", type=click.Choice(sorted(SCRIPTS)), metavar="bash|fish|zsh")
def shell_init(shell: str) -> None:
    """Print a key binding for your shell.

    In the shell, Alt+A replaces what you typed, such as "find big files", by a command. It is not
    run until you press Enter.
    """
    click.echo(SCRIPTS[shell], nl=False)
