"""Writes every dashboard to deploy/grafana: `make dashboards`."""

from pathlib import Path

from dashboards.boards import BOARDS
from dashboards.grafana import as_json

FOLDER = Path(__file__).parents[1] / "deploy" / "grafana"

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for board in BOARDS:
        (FOLDER / f"{board.uid}.json").write_text(as_json(board))
