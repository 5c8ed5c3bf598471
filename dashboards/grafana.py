"""Writes a dashboard as Grafana's JSON model, with Grafana's own library."""

import itertools
from collections.abc import Callable

from grafana_foundation_sdk.builders import common, prometheus, stat, table, timeseries
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.common import (
    BigValueGraphMode,
    GraphDrawStyle,
    LegendDisplayMode,
    LegendPlacement,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.panels import Board, Panel, Style

TAG = "autoscaler"
SOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")


def as_json(board: Board) -> str:
    """Return a dashboard as a file that Grafana imports."""
    dashboard = (
        build.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags([TAG])
        .refresh("30s")
        .time("now-6h", "now")
        .timezone("browser")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .link(_other_boards())
        .with_variable(
            build.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
        )
    )
    if board.by_sku:
        dashboard.with_variable(_skus())
    numbers = itertools.count(1)
    for row in board.rows:
        dashboard.with_row(build.Row(row.title).id(next(numbers)))
        for panel in row.panels:
            dashboard.with_panel(_DRAWN[panel.style](panel).id(next(numbers)))
    return JSONEncoder(sort_keys=True, indent=2).encode(dashboard.build()) + "\n"


def _other_boards() -> build.DashboardLink:
    return (
        build.DashboardLink("Fleet")
        .type(model.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(as_dropdown=True)
        .keep_time(keep_time=True)
        .include_vars(include_vars=True)
    )


def _skus() -> build.QueryVariable:
    return (
        build.QueryVariable("sku")
        .label("SKU")
        .datasource(SOURCE)
        .query("label_values(autoscaler_jobs_waiting, sku)")
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
        .multi(multi=True)
        .include_all(include_all=True)
        .all_value(".*")
    )


def _targets(panel: Panel) -> list[prometheus.Dataquery]:
    targets = []
    for position, query in enumerate(panel.queries):
        target = prometheus.Dataquery().expr(query.expression).ref_id(chr(ord("A") + position))
        if query.legend:
            target.legend_format(query.legend)
        if panel.style in {Style.NUMBER, Style.TABLE}:
            target.instant()
        else:
            target.range()
        if panel.style is Style.TABLE:
            target.format(PromQueryFormat.TABLE)
        targets.append(target)
    return targets


def _lines(panel: Panel) -> timeseries.Panel:
    return (
        timeseries.Panel()
        .title(panel.title)
        .description(panel.description)
        .datasource(SOURCE)
        .unit(panel.unit)
        .min(0)
        .span(panel.width)
        .height(8)
        .draw_style(GraphDrawStyle.LINE)
        .fill_opacity(8)
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.TABLE)
            .placement(LegendPlacement.RIGHT)
            .show_legend(show_legend=True)
            .calcs(["lastNotNull", "max"])
        )
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
        .targets([*_targets(panel)])
    )


def _stacked(panel: Panel) -> timeseries.Panel:
    stacking = common.StackingConfig().mode(StackingMode.NORMAL)
    return _lines(panel).stacking(stacking).fill_opacity(40)


def _number(panel: Panel) -> stat.Panel:
    steps = [model.Threshold(value=None, color="green")]
    if panel.red_from is not None:
        steps.append(model.Threshold(value=panel.red_from, color="red"))
    return (
        stat.Panel()
        .title(panel.title)
        .description(panel.description)
        .datasource(SOURCE)
        .unit(panel.unit)
        .span(panel.width)
        .height(4)
        .graph_mode(BigValueGraphMode.NONE)
        .thresholds(build.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps))
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .targets([*_targets(panel)])
    )


def _table(panel: Panel) -> table.Panel:
    """Return a table without the time of its values."""
    return (
        table.Panel()
        .title(panel.title)
        .description(panel.description)
        .datasource(SOURCE)
        .unit(panel.unit)
        .span(panel.width)
        .height(8)
        .with_transformation(
            model.DataTransformerConfig(
                id_val="organize", options={"excludeByName": {"Time": True}}
            )
        )
        .sort_by([common.TableSortByFieldState().display_name("Value").desc(desc=True)])
        .targets([*_targets(panel)])
    )


_DRAWN: dict[Style, Callable[[Panel], timeseries.Panel | stat.Panel | table.Panel]] = {
    Style.LINES: _lines,
    Style.STACKED: _stacked,
    Style.NUMBER: _number,
    Style.TABLE: _table,
}
