"""What can come next on a command line: `gradlab completion bash` prints a script for the shell, which asks here. Loads no engine."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence

from gradlab.cli.arguments import Parser
from gradlab.cli.kinds import NAMES

SHELLS = ("bash", "zsh", "fish")
WORDS = "--words"  # what the scripts below ask with: the words after `gradlab`, the last of them unfinished

_SCRIPTS = {
    "bash": """\
# gradlab's completion for bash: put `eval "$(gradlab completion bash)"` into ~/.bashrc
_gradlab() {
    local IFS=$'\\n'
    COMPREPLY=($(gradlab completion --words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -o bashdefault -F _gradlab gradlab
""",
    "zsh": """\
#compdef gradlab
# gradlab's completion for zsh: put `eval "$(gradlab completion zsh)"` into ~/.zshrc, after compinit
_gradlab() {
    local -a found
    found=("${(@f)$(gradlab completion --words "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then compadd -- $found; else _files; fi
}
compdef _gradlab gradlab
""",
    "fish": """\
# gradlab's completion for fish: gradlab completion fish > ~/.config/fish/completions/gradlab.fish
complete -c gradlab -a '(gradlab completion --words (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
""",
}


def completion(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("shell", choices=SHELLS, help='the shell; for bash and zsh: eval "$(gradlab completion bash)"')


def script(options: argparse.Namespace) -> int:
    """Prints the shell's script."""
    print(_SCRIPTS[options.shell], end="")
    return 0


def candidates(words: Sequence[str], commands: Mapping[str, str], parser_of: Callable[[str, list[str]], Parser]) -> list[str]:
    """What the last of the words may become; nothing where it is a file or anybody's word (the shell then offers files)."""
    *before, word = words or [""]
    if not before:
        return [name for name in (*commands, "help", "--help", "--version") if name.startswith(word)]
    command = before[0]
    if command == "help":
        found = [*commands] if len(before) == 1 else [*NAMES] if before[1] == "train" else []
        return [name for name in found if name.startswith(word)]
    if command not in commands:
        return []
    actions = parser_of(command, list(before[1:]))._actions
    last = before[-1]
    option = next((a for a in actions if last in a.option_strings), None)
    if option is not None and option.nargs != 0:
        known = option.choices or getattr(option.type, "keywords", {}).get("known", ())  # of a type that names what it takes
        return [str(c) for c in known if str(c).startswith(word)]
    if word.startswith("-"):
        return [name for a in actions for name in a.option_strings if name.startswith("--") and name.startswith(word)]
    places = [a for a in actions if not a.option_strings]
    if command == "train" and not any(w in NAMES or ":" in w for w in before[1:]):
        return [name for name in NAMES if name.startswith(word)]
    return [str(c) for a in places[:1] for c in a.choices or () if str(c).startswith(word) and len(before) == 1]
