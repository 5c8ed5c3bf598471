"""PowerShell scripts, parsed by tree-sitter's grammar of PowerShell."""

import tree_sitter_powershell
from tree_sitter import Language, Node, Parser

_PARSER = Parser(Language(tree_sitter_powershell.language()))


def mistakes(script: str) -> list[str]:
    """Return the line of each place that is not PowerShell."""
    lines = script.splitlines()

    def below(node: Node) -> list[str]:
        found = [mistake for child in node.children for mistake in below(child)]
        if node.is_error or node.is_missing:
            row = min(node.start_point.row, len(lines) - 1)
            found.append(f"line {row + 1}: {lines[row]}")
        return found

    return below(_PARSER.parse(script.encode()).root_node)
