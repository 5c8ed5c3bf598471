"""All dashboards, in the order of their importance."""

from dashboards.controller import CONTROLLER
from dashboards.cost import COST
from dashboards.github import GITHUB
from dashboards.overview import OVERVIEW
from dashboards.sku import SKU
from dashboards.waits import WAITS

BOARDS = (OVERVIEW, SKU, WAITS, COST, GITHUB, CONTROLLER)
