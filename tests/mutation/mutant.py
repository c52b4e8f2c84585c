"""What a mutant is: one piece of one file's text, and what stands there instead."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """A fault: `text[start:end]` of a file is replaced. `line` is its line, `kind` the word for what was done."""

    file: str
    line: int
    kind: str
    start: int
    end: int
    after: str

    def applied(self, text: str) -> str:
        """The file's text with the fault."""
        return text[: self.start] + self.after + text[self.end :]

    def lines(self, text: str) -> tuple[str, str]:
        """The line of code as it is, and as it becomes."""
        begin = text.rfind("\n", 0, self.start) + 1
        finish = text.find("\n", self.end)
        before, behind = text[begin : self.start], text[self.end : finish if finish >= 0 else len(text)]
        return " ".join((before + text[self.start : self.end] + behind).split()), " ".join((before + self.after + behind).split())

    def told(self, text: str) -> str:
        """One line: where, what, and the line of code as it becomes."""
        old = " ".join(text[self.start : self.end].split())
        return f"{self.file}:{self.line} {self.kind}: `{old}` -> `{self.after}` in `{self.lines(text)[1]}`"

    def key(self, text: str) -> str:
        """What a mutant is known by when lines move: its file, its line's code before and after."""
        return " | ".join((self.file, *self.lines(text)))
